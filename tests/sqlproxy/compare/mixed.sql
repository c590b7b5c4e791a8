-- functions of the system's relations in statements over tables
select d.id, obj_description(d.tableoid, 'pg_class'), obj_description(d.tableoid), col_description(d.tableoid, 1) from dept d where id = 1
select d.id, format_type(23, -1), format_type(1043, 24), format_type(1700, 786438), format_type(1042, null), format_type(0, 0), format_type(99, -1), format_type(null, 1), format_type(1184, 3), format_type(1007, -1) from dept d where id = 1
select d.id, format_type(d.id + 20, null) from dept d order by 1
select e.id, format_type(a.atttypid, a.atttypmod) from emp e join pg_attribute a on a.attrelid = e.tableoid and a.attnum = e.id order by 1
select d.id, pg_get_constraintdef(c.oid) from dept d join pg_constraint c on c.conrelid = d.tableoid where d.id = 1 order by 2
select e.id, pg_get_constraintdef(c.oid, true) from emp e join pg_constraint c on c.conrelid = e.tableoid where e.id = 1 order by 2
select s.id, pg_get_constraintdef(c.oid, true), pg_get_constraintdef(c.oid, false) from seq s join pg_constraint c on c.conrelid = s.tableoid where s.id = 1 order by 2
select i.sku, pg_get_indexdef(x.indexrelid), pg_get_indexdef(x.indexrelid, 1, true), pg_get_indexdef(x.indexrelid, 9, true) from item i join pg_index x on x.indrelid = i.tableoid where i.sku = 'a-1' order by 2
select s.id, a.attname, pg_get_expr(f.adbin, f.adrelid) from seq s join pg_attrdef f on f.adrelid = s.tableoid join pg_attribute a on a.attrelid = f.adrelid and a.attnum = f.adnum where s.id = 1 order by 2
select d.id, pg_table_is_visible(d.tableoid), pg_table_is_visible(0), pg_type_is_visible(23), pg_function_is_visible(2108) from dept d where id = 1
select name from dept where pg_table_is_visible(tableoid) and id < 3 order by 1
select d.id, pg_get_userbyid(12345) from dept d where id = 1
select d.id, current_schemas(true), current_schemas(false) from dept d where id = 1
select d.id, pg_encoding_to_char(6), pg_encoding_to_char(0), pg_encoding_to_char(-1), pg_client_encoding() from dept d where id = 1
select d.id, has_table_privilege('dept', 'SELECT'), has_table_privilege(d.tableoid, 'SELECT, insert'), has_table_privilege(0, 'select') from dept d where id = 1
select d.id, has_table_privilege('dept', 'nonsense') from dept d where id = 1
select d.id, has_table_privilege('no_such', 'select') from dept d where id = 1
select d.id, has_table_privilege('no_such', 'dept', 'select') from dept d where id = 1
select d.id, has_schema_privilege('public', 'usage'), has_schema_privilege('pg_catalog', 'usage') from dept d where id = 1
select d.id, has_schema_privilege('nosuch', 'usage') from dept d where id = 1
select d.id, has_database_privilege(current_database(), 'connect') from dept d where id = 1
select d.id, has_column_privilege('dept', 'name', 'select'), has_any_column_privilege('dept', 'select') from dept d where id = 1
select d.id, has_sequence_privilege('q', 'usage') from dept d where id = 1
select d.id, pg_has_role(current_user, 'usage') from dept d where id = 1
select d.id, pg_size_pretty(10239::bigint), pg_size_pretty(10240::bigint), pg_size_pretty(-10485760::bigint), pg_size_pretty(d.id * 123456789012::bigint), pg_size_pretty(1234567.5), pg_size_pretty(9223372036854775807) from dept d order by 1
select d.id, pg_size_pretty(20970495::bigint), pg_size_pretty(20970496::bigint), pg_size_pretty(21474835456::bigint), pg_size_pretty(10485247::bigint), pg_size_pretty(10485248::bigint) from dept d where id = 1
select d.id, pg_is_in_recovery(), pg_my_temp_schema(), pg_is_other_temp_schema(1) from dept d where id = 1
select d.id, pg_typeof(version()), pg_typeof(txid_current()), pg_typeof(pg_postmaster_start_time()) from dept d where id = 1
select d.id, txid_current() = txid_current() from dept d where id = 1
select d.id, pg_index_column_has_property('item_price'::regclass, 1, 'asc'), pg_index_column_has_property('item_price'::regclass, 1, 'desc'), pg_index_column_has_property('item_price'::regclass, 1, 'nonsense') from dept d where id = 1
select d.id, pg_relation_is_updatable('dept', true), pg_column_is_updatable('dept'::regclass, 1::int2, true) from dept d where id = 1
select d.id, pg_relation_size('staff') from dept d where id = 1
select count(*) from dept where pg_relation_size(tableoid) >= 0 and pg_total_relation_size('dept') >= pg_table_size('dept')
select count(*), max(format_type(id + 20, -1)) from dept
select format_type(id + 19, -1), count(*) from dept group by 1 order by 1
select row_number() over (order by format_type(id + 19, -1)), id from dept order by 1
select id from dept where format_type(id + 20, -1) = 'smallint'
select id from dept order by format_type(id + 20, -1) desc
update dept set site = format_type(id + 20, -1) where id in (1, 3) returning id, site
insert into pair select 7, attnum, format_type(atttypid, -1) from pg_attribute where attrelid = 'dept'::regclass and attnum > 0 returning a, b, v
delete from pair where exists (select from dept d where format_type(d.id + 19, -1) = 'bigint') and a = 1 returning b
with m as (update dept set name = name || '!' where id = 1 returning tableoid) select obj_description(tableoid), relname from m join pg_class c on c.oid = m.tableoid
-- names of objects
select d.id, c.relnamespace::regnamespace from dept d join pg_class c on c.oid = d.tableoid where d.id < 3 order by 1
select d.id from dept d join pg_class c on c.oid = d.tableoid where c.relnamespace = 'public'::regnamespace order by 1
select d.id from dept d join pg_class c on c.oid = d.tableoid where c.relnamespace::regnamespace::text = 'public' order by 1
select d.id, 'pg_catalog'::regnamespace, 'public'::regnamespace::oid > 0, 11::regnamespace, 4294967295::regnamespace, '11'::regnamespace, '-'::regnamespace from dept d where id = 1
select d.id, 'nosuch'::regnamespace from dept d where id = 1
select d.id, to_regnamespace('nosuch'), to_regnamespace('public'), to_regtype('int4'), to_regtype('nosuch'), to_regproc('now'), to_regproc('nosuch'), to_regrole('nosuch') from dept d where id = 1
select e.id, a.atttypid::regtype from emp e join pg_attribute a on a.attrelid = e.tableoid and a.attnum = e.id order by 1
select e.id, a.atttypid::regtype::text || '!' from emp e join pg_attribute a on a.attrelid = e.tableoid and a.attnum = e.id order by 1
select e.id from emp e join pg_attribute a on a.attrelid = e.tableoid and a.attnum = e.id where a.atttypid = 'text'::regtype order by 1
select e.id from emp e join pg_attribute a on a.attrelid = e.tableoid and a.attnum = e.id where a.atttypid::regtype = 'integer'::regtype order by 1
select a.atttypid::regtype, count(*) from emp e join pg_attribute a on a.attrelid = e.tableoid and a.attnum = e.id group by 1 order by 2 desc, 1 limit 1
select d.id, 'now'::regproc, 'int4in'::regproc, 'sum'::regproc from dept d where id = 1
select d.id, 'now'::regproc, 'int4in'::regproc, 1299::regproc from dept d where id = 1
select d.id, 'nosuch'::regproc from dept d where id = 1
select d.id, 'lower(text)'::regprocedure, 'sum(integer)'::regprocedure from dept d where id = 1
select d.id, t.typinput, t.typoutput::text, t.typinput::oid from dept d join pg_type t on t.typname = 'int4' where d.id = 1
select d.id, p.proname from dept d join pg_proc p on p.oid = 'lower(text)'::regprocedure where d.id = 1
select d.id, a.amhandler from dept d, pg_am a where d.id = 1 order by a.oid
select d.id, o.oprcode, o.oprcode::text from dept d join pg_operator o on o.oid = 96 where d.id = 1
select d.id, 96::regoperator, 96::regoper, 1299::regproc, 2108::regproc, 2108::regprocedure from dept d where d.id = 1
select d.id, 'int4'::regtype::oid, pg_typeof(d.id)::oid from dept d where id = 1
select d.id, 'dept'::regclass::oid = d.tableoid, d.tableoid::regclass from dept d where id = 1
-- vectors
select i.sku, x.indkey, x.indkey::text, x.indnatts, x.indclass[0] from item i join pg_index x on x.indrelid = i.tableoid where i.sku = 'a-1' order by x.indkey[0]
select i.sku, x.indkey[0], x.indkey[1], x.indkey[2] from item i join pg_index x on x.indrelid = i.tableoid where i.sku = 'a-1' order by 2
select p.a, p.b, t.attname from pair p join pg_index x on x.indrelid = p.tableoid join pg_attribute t on t.attrelid = x.indrelid and t.attnum = any(x.indkey) where p.a = 1 and p.b = 2 order by t.attnum
select p.a, k.attnum from pair p join pg_index x on x.indrelid = p.tableoid, unnest(x.indkey) k(attnum) where p.a = 1 and p.b = 2 order by 2
select d.id, c.conkey, c.confkey from emp d join pg_constraint c on c.conrelid = d.tableoid where d.id = 1 order by c.conname
select d.id, array_to_string(p.proargtypes, ','), p.proargtypes from dept d join pg_proc p on p.proname = 'lpad' where d.id = 1 order by p.pronargs
-- information_schema and system views beside tables
select t.table_name, d.id from information_schema.tables t join dept d on t.table_name = 'dept' where d.id < 3 order by 2
select d.id, k.column_name, k.constraint_name from dept d, information_schema.key_column_usage k where k.table_name = 'pair' and d.id = k.ordinal_position order by 1
select d.id, s.sequence_name from dept d left join information_schema.sequences s on s.sequence_name = 'seq_id_seq' where d.id = 2
insert into pair select 8, ordinal_position, column_name from information_schema.columns where table_name = 'dept' returning *
insert into pair (a, b, v) select 8, count(*), table_type from information_schema.tables where table_schema = 'public' and table_name in ('dept', 'emp') group by 3 returning *
create table copied as select column_name::text as c, data_type::text as t from information_schema.columns where table_name = 'dept' ;; select * from copied order by 1
with c as (select relname, oid from pg_class where relkind = 'r'), d as (select name, tableoid from dept where id < 3) select d.name, c.relname from d join c on c.oid = d.tableoid order by 1
with recursive r(n, oid) as (select 1, 'dept'::regclass::oid union all select n + 1, conrelid from r join pg_constraint c on c.confrelid = r.oid where n < 4) select n, oid::regclass from r, dept where dept.id = 1
select d.id, (select count(*) from pg_index where indrelid = d.tableoid), array(select attname::text from pg_attribute a where a.attrelid = d.tableoid and attnum > 0 order by attnum) from dept d where id = 1
select name from dept union select relname from pg_class where relname = 'emp' order by 1
select d.id, c.relname from dept d cross join lateral (select relname from pg_class where oid = d.tableoid) c order by 1
select d.id, i.indexname, i.indexdef from dept d join pg_indexes i on i.tablename = 'dept' where d.id = 1 order by 2
merge into pair p using (select attnum::int as n, attname from pg_attribute where attrelid = 'dept'::regclass and attnum > 0) s on p.a = s.n and p.b = 1 when matched then update set v = s.attname when not matched then insert values (s.n, 1, s.attname)
update dept d set name = c.relname from pg_class c where c.oid = d.tableoid and d.id = 1 returning d.id, d.name
delete from pair p using pg_class c where c.relname = 'pair' and p.a = c.relnatts - 2 returning a, b
-- of the system's relations alone, with what DuckDB's catalog did not know
select relkind, count(*) from pg_class where relname in ('dept', 'emp', 'staff') group by grouping sets ((relkind), ()) order by 1, 2
select relname, to_char(relnatts, '999') from pg_class where relname in ('dept', 'pair') order by 1
select relname, row_number() over (order by relname rows between 1 preceding and current row) from pg_class where relname in ('dept', 'pair') order by 1
select jsonb_build_object('a', relname) -> 'a' from pg_class where relname = 'dept'
select json_agg(relname order by relname) from pg_class where relname in ('dept', 'pair')
select row_to_json(c) from (select relname, relkind from pg_class where relname = 'dept') c
select percentile_disc(0.5) within group (order by relname) from pg_class where relname in ('dept', 'emp', 'pair')
select c.*  from (values (1, 'x')) c(a, b) join pg_class p on p.relname = 'dept' and to_date('2024', 'YYYY') > '2020-01-01'
explain insert into pair select 8, ordinal_position, column_name from information_schema.nosuch
select count(*) from dept, pg_class c where c.relname in ('dept', 'pair')
select count(*) from dept, pg_am
create view sys as select relname, oid, relnatts from pg_class ;; select relname, relnatts from sys where relname = 'pair'
select t, t::regtype::text, to_regtype(t)::text from (values ('int4'), ('INT'), ('DOUBLE   precision'), ('"pg_catalog"."_text"'), ('pg_catalog."int4"'), ('text[]'), ('"text"[]'), ('timestamp(3) with time zone'), ('timestamptz'), ('numeric(10,2)'), ('varchar(5)'), ('"char"'), ('char'), ('char(3)'), ('_int4'), ('int4[][]'), ('int4[3]'), ('int4 array'), ('dec(5)'), ('float'), ('character(10)[]')) v(t)
select t, to_regtype(t)::text from (values ('public.int4'), ('nosuch.int4'), ('"Int4"'), ('pg_catalog.integer')) v(t)
select (t || '')::regtype from (values ('public.int4')) v(t)
select (t || '')::regtype from (values ('nosuch.int4')) v(t)
select (t || '')::regtype from (values ('"Int4"')) v(t)
