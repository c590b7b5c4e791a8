-- tables beside relations of the system
select c.relname from dept d join pg_class c on c.oid = d.tableoid where d.id = 1
SELECT c.relname FROM dept d JOIN PG_CLASS c ON c.oid = d.tableoid WHERE d.id = 1
select (select relname from pg_class where oid = d.tableoid) from dept d where id = 1
select d.id, c.relname from dept d, pg_class c where c.oid = d.tableoid order by d.id
select n.nspname, c.relname, d.id from dept d join pg_class c on d.tableoid = c.oid join pg_namespace n on n.oid = c.relnamespace where d.id < 3 order by 3
select id from dept where tableoid = (select oid from pg_class where relname = 'dept') order by id
select p.relname, count(*) from emp e join pg_catalog.pg_class p on p.oid = e.tableoid group by 1
select tableoid::regclass, (select count(*) from pg_attribute a where a.attrelid = d.tableoid and attnum > 0) from dept d order by id limit 1
select d.name, t.typname, t.typlen from dept d join pg_type t on t.typname = 'int4' order by d.id
select d.id, c.column_name, c.data_type from dept d, information_schema.columns c where c.table_name = 'dept' and d.id = c.ordinal_position order by 1
select id from dept where name in (select rolname::text from pg_roles) order by 1
update dept set name = (select relname || '!' from pg_class where oid = dept.tableoid) where id = 4 returning id, name
delete from pair where a = 1 and exists (select from pg_class where relname = 'pair') returning a, b
insert into pair select 9, attnum, attname from pg_attribute a where attrelid = 'dept'::regclass and attnum > 0 and exists (select from pair) returning a, b, v
select d.id, a.attname from dept d join pg_attribute a on a.attrelid = 'public.dept'::regclass and a.attnum = d.id order by 1
select pg_class.relname from pg_class, dept where dept.tableoid = pg_class.oid and dept.id = 2
select d.id, i.indisunique, i.indkey::text from dept d join pg_index i on i.indrelid = d.tableoid and i.indisprimary order by 1 limit 1
select relname from pg_class where oid in (select tableoid from dept)
select exists (select from pg_tables t join dept on dept.name = t.tablename)
declare c cursor for select d.id, c.relname from dept d join pg_class c on c.oid = d.tableoid order by 1 ;; fetch 2 from c
prepare p(text) as select d.id from dept d join pg_class c on c.oid = d.tableoid where c.relname = $1 order by 1 ;; execute p('dept') ;; execute p('emp')
select * from nosuch.pg_class, dept
select d.id from dept d join pg_nosuch c on true
