1: create schema sales

1: create schema hr

1: create table orders (id serial primary key, what text unique)

1: create table sales.customers (id int primary key, name text not null, code text unique)

1: insert into sales.customers values (1, 'ann', 'a'), (2, 'bob', 'b'), (3, 'cy', 'c')

1: create table sales.lines (o int references orders, c int references sales.customers on delete cascade, primary key (o, c))

1: create table hr.staff (id int primary key, customer int references sales.customers (id) on update cascade on delete set null)

1: insert into orders (what) values ('x'), ('y')

1: insert into sales.lines values (1, 1), (2, 2)

1: insert into sales.lines values (3, 1)

1: insert into sales.lines values (1, 9)

1: insert into hr.staff values (1, 1), (2, 2), (3, null)

1: insert into hr.staff values (4, 7)

1: update sales.customers set id = 10 where id = 1

1: select * from hr.staff order by id

1: delete from orders where id = 1

1: delete from sales.customers where id = 2

1: select * from hr.staff order by id

1: select * from sales.lines order by 1, 2

1: select conname, conrelid::regclass::text, confrelid::regclass::text, pg_get_constraintdef(oid) from pg_constraint where contype = 'f' order by 1

1: select constraint_schema, constraint_name, unique_constraint_schema, unique_constraint_name, delete_rule from information_schema.referential_constraints order by 1, 2

1: select table_schema, table_name, column_name from information_schema.constraint_column_usage where constraint_name like '%fkey' order by 1, 2, 3

1: drop table sales.customers

1: truncate sales.customers

1: truncate sales.customers, hr.staff, sales.lines

1: insert into sales.customers values (1, 'ann', 'a'), (2, 'bob', 'b')

1: alter table orders add column owner text references sales.customers (code)

1: insert into orders (what, owner) values ('z', 'a')

1: insert into orders (what, owner) values ('w', 'q')

1: alter table sales.customers drop constraint customers_code_key

1: alter table sales.customers drop column code

1: alter table sales.customers drop column code cascade

1: select pg_get_constraintdef(oid) from pg_constraint where conrelid = 'orders'::regclass and contype = 'f'

1: alter table orders add foreign key (id) references sales.nothing

1: alter table orders add foreign key (id) references nowhere.customers

1: alter table hr.staff add column boss int references hr.staff, add column made int references orders

1: drop table orders

1: alter table hr.staff drop column made

1: create view sales.named as select o.id, o.what, c.name from orders o left join sales.customers c on c.id = o.id

1: create view wide as select n.id, n.name, s.id as staff from sales.named n join hr.staff s on s.customer = n.id

1: select * from sales.named order by 1

1: select * from wide

1: select table_schema, table_name from information_schema.view_table_usage where view_schema in ('public', 'sales') order by 1, 2

1: drop view sales.named

1: drop table hr.staff

1: drop table sales.customers

1: alter table sales.customers rename to clients

1: select * from sales.named order by 1

1: alter table sales.clients rename column name to title

1: select * from sales.named order by 1

1: alter table sales.clients alter column title type int using 1

1: alter view sales.named rename to titled

1: select * from wide order by 1

1: drop view sales.titled cascade

1: select count(*) from information_schema.views where table_schema in ('public', 'sales', 'hr')

1: create sequence hr.numbers start 100

1: create table numbered (id int default nextval('hr.numbers'), v text)

1: insert into numbered (v) values ('a'), ('b') returning *

1: select column_default from information_schema.columns where table_name = 'numbered' and column_name = 'id'

1: drop sequence hr.numbers

1: alter sequence hr.numbers rename to counted

1: select column_default from information_schema.columns where table_name = 'numbered' and column_name = 'id'

1: insert into numbered (v) values ('c') returning *

1: alter table sales.clients alter column id set default nextval('hr.counted')

1: insert into sales.clients (title) values ('new') returning *

1: drop sequence hr.counted cascade

1: insert into numbered (v) values ('d') returning *

1: alter table numbered alter column id set default nextval('hr.nothing')

1: create type hr.mood as enum ('sad', 'fine', 'glad')

1: create table felt (id int primary key, how hr.mood default 'fine', all_of hr.mood[], check (how > 'sad'::hr.mood or id > 10))

1: insert into felt values (1, default, '{glad,sad}'), (2, 'glad', null)

1: insert into felt values (3, 'sad')

1: insert into felt values (3, 'angry')

1: select id, how, all_of from felt where how >= 'fine' order by how desc, id

1: select format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'felt'::regclass and attnum > 0 order by attnum

1: select udt_schema, udt_name, column_default from information_schema.columns where table_name = 'felt' order by ordinal_position

1: alter table sales.clients add column how hr.mood not null default 'glad'

1: select id, how from sales.clients order by id

1: alter type hr.mood rename value 'glad' to 'happy'

1: select id, how, all_of from felt order by id

1: alter type hr.mood add value 'great' after 'happy'

1: insert into sales.clients values (50, 'great one', 'great') returning how

1: alter table felt alter column how drop default

1: create index on felt (how)

1: select id from felt where how = 'happy'

1: set search_path = hr, public

1: create table feelings (m mood default 'sad', check (m <> 'great'::mood), twice text generated always as (case when m = 'sad' then 'no' else 'yes' end) stored)

1: create view moods as select m from feelings where m = 'sad'::mood

1: create table public.from_hr (m mood, check (m <> 'sad'::mood))

1: create view public.seen as select m, 'fine'::mood as f from feelings where m < 'great'::mood

1: create index great_ones on feelings (m) where m <> 'sad'::mood

1: reset search_path

1: insert into hr.feelings default values

1: insert into hr.feelings values ('great')

1: select * from hr.moods

1: insert into from_hr values ('sad')

1: select * from seen

1: drop type hr.mood

1: create schema other

1: create table other.base (id int primary key, q serial)

1: create view top as select id from other.base

1: create table leaf (b int references other.base, n int default nextval('other.base_q_seq'))

1: create view over_top as select b, top.id from leaf, top

1: drop schema other

1: drop schema other cascade

1: select conname from pg_constraint where conrelid = 'leaf'::regclass

1: select column_default from information_schema.columns where table_name = 'leaf' and column_name = 'n'

1: insert into leaf values (5)

1: select * from top

1: create schema a

1: create schema b

1: create table a.t (id int primary key)

1: create table b.t (id int primary key references a.t)

1: drop table a.t, b.t

1: create table a.t (id int primary key)

1: create table b.t (id int primary key references a.t)

1: drop schema a, b

1: drop schema a, b cascade

1: select nspname from pg_namespace where nspname in ('a', 'b')

1: drop schema hr cascade

1: select column_name from information_schema.columns where table_name = 'felt' order by ordinal_position

1: select * from sales.clients order by id

1: create schema lib

1: create function lib.twice(i int) returns int language sql as 'select i * 2'

1: create function twice(i int) returns int language sql as 'select i * 3'

1: select lib.twice(4), twice(4)

1: create function lib.echo(t text, n int default 2) returns text language sql immutable as $$ select repeat(t, n) $$

1: select echo('a')

1: select lib.echo('a'), lib.echo('b', n => 3)

1: select nowhere.echo('a')

1: create function nowhere.f() returns int language sql as 'select 1'

1: set search_path = lib, public

1: select twice(4), echo('a'), public.twice(4)

1: create view public.through as select twice(5) as t, echo('x') as o

1: create function made(a int) returns table (b int) language sql as 'select a union all select a + 1'

1: select b from made(3) order by b

1: reset search_path

1: select * from through

1: select b from made(3) order by b

1: select b from lib.made(3) order by b

1: select n.nspname, p.proname, pg_get_function_identity_arguments(p.oid) from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname in ('lib', 'public') order by 1, 2

1: select p.proname, pg_function_is_visible(p.oid) from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'lib' order by 1

1: drop function lib.twice(int)

1: drop function made(int)

1: drop function lib.made(int), twice

1: create or replace function lib.twice(i int) returns int language sql as 'select i * 20'

1: select * from through

1: create schema lib

1: alter schema lib rename to tools

1: select * from through

1: select tools.twice(1), lib.twice(1)

1: select tools.twice(1)

1: drop schema tools

1: drop view through

1: drop schema tools cascade

1: create schema stock

1: create type stock.size as enum ('small', 'large')

1: create sequence stock.numbers start 7

1: create table stock.items (id serial primary key, s stock.size not null default 'small', n int default nextval('stock.numbers'), check (s <> 'large'::stock.size or id < 100))

1: create index items_large on stock.items (id) where s = 'large'::stock.size

1: create table bought (item int references stock.items, s stock.size default 'large'::stock.size, n int default nextval('stock.numbers'))

1: create view stock.small as select i.id, i.s from stock.items i where i.s = 'small'::stock.size

1: create view sizes as select stock.items.id, stock.items.s::text as s from stock.items

1: create function at_stock() returns bigint language sql as 'select count(*) from stock.items'

1: insert into stock.items (s) values ('small'), ('large') returning *

1: insert into bought values (1) returning *

1: comment on table stock.items is 'what there is'

1: prepare counted as select count(*) from stock.items

1: execute counted

1: alter schema nothing rename to something

1: alter schema stock rename to public

1: alter schema stock rename to pg_stock

1: begin

1: create table stock.more (a int)

1: alter schema stock rename to "Big_Store"

1: commit

1: select * from stock.items

1: select id, s from "Big_Store".items order by id

1: select * from "Big_Store".small

1: select * from sizes order by id

1: select column_name, column_default, udt_schema, udt_name from information_schema.columns where table_schema in ('public', 'Big_Store') and table_name in ('items', 'bought') order by table_name, ordinal_position

1: select pg_get_constraintdef(oid) from pg_constraint where contype = 'f' and conrelid in ('bought'::regclass, '"Big_Store".items'::regclass) order by 1

1: select indexdef from pg_indexes where schemaname = 'Big_Store' order by 1

1: select obj_description('"Big_Store".items'::regclass)

1: insert into "Big_Store".items (s) values ('large') returning *

1: insert into bought values (3) returning *

1: insert into bought values (4)

1: delete from "Big_Store".items where id = 1

1: select at_stock()

1: create schema stock

1: create table stock.items (a int)

1: select at_stock()

1: alter schema "Big_Store" rename to stock

1: drop schema stock cascade

1: alter schema "Big_Store" rename to stock

1: select at_stock()

1: set search_path = stock

1: select count(*) from items

1: alter schema stock rename to goods

1: select count(*) from items

1: set search_path = goods

1: select count(*) from items

1: reset search_path

1: alter table goods.items set schema public

1: select * from goods.small

1: insert into items (s) values ('small') returning s, n

1: drop type goods.size cascade

1: select column_name from information_schema.columns where table_name in ('items', 'bought') order by table_name, ordinal_position

1: create schema felt

1: create type felt.mood as enum ('ok', 'bad')

1: create type felt.grade as enum ('x')

1: create type grade as enum ('y')

1: select pg_typeof('ok'::felt.mood), pg_typeof(array['ok'::felt.mood]), pg_typeof('y'::grade), pg_typeof('x'::felt.grade), 'felt.mood'::regtype

1: select pg_typeof('ok'::felt.mood)::text, pg_typeof('ok'::felt.mood) = 'felt.mood'::regtype, pg_typeof('ok'::felt.mood)::oid = 'felt.mood'::regtype::oid, pg_typeof('y'::grade) = 'grade'::regtype, format_type('felt.mood[]'::regtype, null)

1: select 'mood'::regtype

1: select to_regtype('mood'), to_regtype('grade[]'), to_regtype('felt.grade'), to_regtype('integer'), to_regtype('"char"')

1: set search_path = felt, public

1: select pg_typeof('ok'::felt.mood), pg_typeof(array['ok'::mood]), pg_typeof('y'::public.grade), pg_typeof('x'::grade), 'felt.mood'::regtype, 'grade'::regtype, 'public.grade'::regtype, format_type('mood'::regtype, null)

1: set search_path = felt

1: select pg_typeof('y'::public.grade), to_regtype('public.grade[]')

1: reset search_path

1: drop type felt.mood, felt.grade, grade
