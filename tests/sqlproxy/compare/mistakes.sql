-- statements that are wrong: SQLSTATEs and words
selec 1
select 1 from
select * form emp
select (1
select 'abc
select "abc
select 1 +
select from where
select * from emp where
select * from emp group
select * from emp order id
insert into
update emp
delete emp
select 1 as select
select a b c
select 1;; drop
select * from emp where id = = 1
select * from emp limit 1, 2
select top 1 * from emp
select * from emp where id === 1
select @@version
select `id` from emp
select id from emp where name = "Ada"
select * from public.emp e where public.emp.id = 1
select * from other.emp
select * from nodb.public.emp
select nowhere.f(1)
select pg_catalog.upper('a'), pg_catalog.int4 '5'
select nope(1)
select upper(1, 2)
select sum(1, 2)
select emp.* from dept
select * from emp e, dept e
select id from emp e join sale s on s.emp = e.id
select e.id from emp e join sale s using (emp)
select e.id from emp e join sale s using (nope)
select count(*) from emp where count(*) > 1
select name, count(*) from emp
select * from emp group by dept
select sum(count(*)) from emp
select id from emp having id > 1
select id from emp group by name
select dept from emp group by dept having name = 'x'
select dept from emp group by dept order by name
select avg('x')
select sum('x'::text)
select max(1, 2)
select 1 where 1
select 1 where 'x'
select 1 having 1
select not 1
select 1 and true
select case when 1 then 2 end
select 'x'::int
select 'x'::date
select 'x'::numeric
select 'x'::json
select 'x'::interval
select 'x'::bool
select '2024-02-30'::date
select '1'::date
select 1::date
select true::date
select date '2024-01-01'::int
select '{1}'::int
select array[1]::int
select 1::int[]
select null::nope
select 1::int(3)
select 'a'::varchar(-1)
select 1.5::numeric(0)
select 1.5::numeric(2000)
select 1.5::numeric(2, 5000)
select interval '1' fortnight
select extract(nope from now())
select extract(year from 'x')
select substring(1 from 2)
select position(1 in 'a')
select trim(5)
select overlay(1 placing 2 from 3)
select coalesce()
select nullif(1)
select greatest()
select row(1, 2).a
select (1, 2).f1
select $1
select $1::int
select $0
select :x
select ?
select current_date()
select now
select localtime::text is null
select default
select * from generate_series(1)
select * from generate_series('a', 'b')
select * from upper('x')
select * from nope(1)
select generate_series(1, 2) from emp where generate_series(1, 2) = 1
select unnest(1)
select * from unnest('x')
select * from emp tablesample system (10)
select * from only emp limit 1
select id into emp_ids from emp
select * from emp order by nope
select * from emp order by 99
select * from emp order by 0
select * from emp order by -1
select * from emp order by 'x'
select * from emp order by 1 + 1 limit 1
select distinct id from emp order by name
select id from emp union select id from dept order by name
select id from emp union select id from dept order by id + 1
select id from emp limit 'x'
select id from emp limit 1.7
select id from emp limit id
select id from emp limit (select 2)
select id from emp offset 9223372036854775808
select id from emp fetch first -1 rows only
select * from emp natural join dept
select * from emp join dept
select * from emp cross join dept on true
select * from emp left join dept
select e.id from emp e join dept d on e.id
select * from emp e join dept d on d.id = x.id
select * from emp e join dept d on nope = 1
select * from (select 1)
select * from (select 1) x(a, b)
select * from (select id, id from emp) x where id = 1
select * from (values (1), (2, 3)) v
values (1), ('x')
values (default)
select (select 1, 2)
select exists (select)
select 1 in (select 1, 2)
select (1, 2) in (select 1)
select 1 = any (select 1, 2)
select 1 in ()
select id from emp where id = (select)
with x as (select 1) select * from y
with x as (insert into dept values (99, 'q')) select * from x
with x as (select 1) insert into nowhere select * from x
select pg_typeof(emp) from emp where id = 1
select e.id.x from emp e
select id[1] from emp
select name[1] from emp
select tags.x from emp
select info.lang from emp
select -name from emp
select name + 1 from emp
select name || id from emp order by id limit 1
select tags || id from emp
select info + 1 from emp
select id || dept from emp
select hired + hired from emp
select hired - name from emp
select active + 1 from emp
select active > 1 from emp
select pay = 'abc' from emp
select id = 'abc' from emp
select id = '1.5' from emp
select name = 5 from emp
select hired = 5 from emp
select hired > 'abc' from emp
select tags = 'a' from emp
select tags = array[1] from emp
select info = '{bad' from emp
select id like '1%' from emp
select name like 5 from emp
select name ~ 5 from emp
select id between 'a' and 'b' from emp
select id in ('a') from emp
select case id when 'a' then 1 end from emp
select coalesce(id, 'a') from emp
select coalesce(id, name) from emp
select greatest(id, name) from emp
select nullif(id, name) from emp
select id from emp union select name from emp
select array[id, name] from emp
select (id, name) = (1, 2) from emp
select cast(name as int) from emp where id = 1
select cast(name as int) from emp where id = 99
select name::date from emp
select pay::date from emp
select id::bool from emp where id = 1
select pay::bool from emp
select active::int from emp where id = 1
select hired::int from emp
select tags::int from emp
select info::int from emp where id = 6
select round(name) from emp
select upper(id) from emp
select length(id) from emp
select sum(active) from emp
select avg(tags) from emp
select count(distinct id, name) from emp
select string_agg(id, ',') from emp
select string_agg(name) from emp
select array_agg() from emp
select lag() over () from emp
select row_number(1) over () from emp
select row_number() over (order by nope) from emp
select rank() over (partition by) from emp
select pg_sleep('x')
select to_char(1)
select to_date('2024')
select date_trunc('year')
select make_date('x', 1, 1)
select lpad('a')
select concat_ws()
select jsonb_build_object('a', 1, 'b')
select '{}'::jsonb -> 1.5
select '{}'::jsonb + '{}'
select 1 @> 2
select 1 ~~~ 2
select 1 operator(pg_catalog.+) 2
select 1 operator(nope.+) 2
select 'a' collate nope
select 1 collate "C"
select cast('a' as text collate "C")
create table dept (id int)
drop table nowhere
drop table if exists nowhere
drop view emp
drop table staff
drop index nowhere
create index on nowhere (a)
create index on emp (nope)
create view v as select nope from emp
alter table nowhere add column a int
alter table emp add column id int
alter table emp drop column nope
alter table emp alter column nope set not null
alter table pair alter column v type text collate "nope"
alter table pair add column c text collate "nope"
create table zz (a text collate "nope")
create table zz (a int collate "C")
create index zz on pair (v collate "nope")
select v collate "nope" from pair
select v from pair order by v collate "nope"
select 'a' collate nosuch."C"
select max(v collate "nope") from pair
select a.v from pair a join pair b on a.a = b.b order by a.v collate "nope"
update pair set v = 'x' collate "nope"
insert into pair values (9, 9, 'x') on conflict (a collate "nope") do nothing
select v collate "C" < 'b' collate "C", v collate "default" from pair where a = 1 and b = 2
create view zz as select v collate "nope" as x from pair
