1: create schema s1

1: create sequence s1.q

1: create sequence q0

1: select currval('q0')

1: select nextval('s1.q'), nextval('q0'), nextval('q0')

1: alter schema s1 rename to s2

1: create schema s1

1: create sequence s1.q start 50

1: select currval('s1.q')

1: select currval('s2.q'), lastval()

1: alter sequence q0 rename to q1

1: create sequence q0 start 70

1: select currval('q0')

1: select currval('q1'), lastval()

1: alter sequence q1 set schema s1

1: select currval('q1')

1: select currval('s1.q1'), lastval()

1: select currval('s1.q1'), count(*) over ()

1: select (select currval('s1.q1')), lastval() from generate_series(1, 2)

1: drop sequence s1.q1

1: select lastval()

1: select currval('s1.q1')

1: create sequence s1.q1

1: select currval('s1.q1')

1: select lastval()

1: select nextval('s1.q1')

1: select currval('s1.q1'), lastval()

1: select currval('q9')

1: select currval('s9.q')

1: create table t (a int)

1: insert into t values (1)

1: select lastval()

1: select currval('t')

1: create table u (id serial primary key, b int)

1: alter table u alter b set default currval('u_id_seq')

1: insert into u default values returning *

1: alter table u alter b drop default

1: alter sequence u_id_seq rename to other

1: insert into u default values returning *

1: select currval('other'), lastval(), currval(pg_get_serial_sequence('u', 'id'))

1: select setval('other', 40), currval('other')

1: select currval('other')

1: create temp sequence mine

1: select nextval('mine'), currval('mine'), lastval()

1: create sequence public.mine start 9

1: select currval('mine')

1: select currval('public.mine')

1: prepare p as select currval('s2.q')

1: execute p

1: alter schema s2 rename to s3

1: execute p

1: select currval('s3.q')

1: drop schema s3 cascade

1: select currval('s3.q')

1: prepare pp(text) as select currval($1::regclass)

1: execute pp('other')

1: execute pp('q0')

1: select currval('q0')

1: drop table t, u

1: create table p (id int primary key, a int)

1: create table c (id int primary key, p int references p)

1: insert into p values (1, 1), (2, 2), (3, 3)

1: insert into c values (1, 1)

1: with d as (delete from p where id = 2 returning *) insert into p select id, a + 10 from d

1: select * from p order by id

1: with d as (delete from p where id = 1 returning *) insert into p select id, a + 10 from d

1: select * from p order by id

1: select * from c

1: with d as (delete from p where id = 1 returning *) insert into p select id + 100, a from d

1: with d as (delete from p where id = 3 returning *) insert into p select id, a + 1 from d returning *

1: with d as (delete from p returning *) insert into p select id, 0 from d

1: select * from p order by id

1: create table k (id int primary key, p int references p on delete cascade)

1: insert into k values (1, 2)

1: with d as (delete from p where id = 2 returning *) insert into p select id, a + 10 from d

1: select * from k

1: begin

1: with d as (delete from p where id = 1 returning *) insert into p select id, a + 7 from d

1: select * from p order by id

1: commit

1: with n as (insert into p values (50, 1) returning id) insert into c select 50, id from n

1: with n as (insert into c values (60, 60) returning p) insert into p select p, 0 from n

1: select * from c order by id

1: with u as (update p set id = 51 where id = 50 returning a) insert into p select 50, a from u

1: select * from p order by id

1: drop table k, c, p

1: create schema s

1: create table p (a text)

1: insert into p values ('public')

1: create table s.p (a text)

1: insert into s.p values ('s')

1: create table s.only (a int)

1: create type s.mood as enum ('x', 'y')

1: create type mood as enum ('a', 'b')

1: create function f() returns text language sql as $$ select 'public' $$

1: create function s.f() returns text language sql as $$ select 's' $$

1: create sequence q start 5

1: create sequence s.q start 50

1: create role sql_paths_r

1: grant select on p, s.p to sql_paths_r

1: grant usage on q, s.q to sql_paths_r

1: set search_path = s, public

1: select * from p

1: set role sql_paths_r

1: select * from p

1: select f()

1: select nextval('q')

1: select 'a'::mood

1: select to_regclass('p'), to_regclass('only')

1: select * from "only"

1: select * from s.p

1: select current_schema, current_schemas(false)

1: select 'p'::regclass::oid = 'public.p'::regclass::oid

1: reset role

1: grant usage on schema s to sql_paths_r

1: set role sql_paths_r

1: select * from p

1: select f(), nextval('q'), 'x'::mood

1: select current_schema, current_schemas(false)

1: reset role

1: revoke usage on schema s from sql_paths_r

1: prepare w as select * from p

1: execute w

1: set role sql_paths_r

1: execute w

1: select * from p

1: reset role

1: reset role

1: revoke all on public.p, s.p, public.q, s.q from sql_paths_r

1: drop role sql_paths_r

1: set search_path = public

1: drop table p

1: drop schema s cascade

1: drop type mood

1: drop function f()

1: create schema s

1: create view s.v as select 1 as a

1: drop schema s cascade

1: drop table if exists s.t

1: drop view if exists s.v

1: drop sequence if exists s.q

1: drop index if exists s.i

1: create table there (a int)

1: drop table if exists s.t, there

1: select to_regclass('there')

1: drop table s.t

1: create table s.t (a int)

1: create view s.v as select 1

1: alter table s.t add column b int

1: alter schema s rename to r

1: create schema s

1: create type s.mood as enum ('a', 'b')

1: create type mood as enum ('c')

1: create table t (a int, m s.mood)

1: insert into t values (1, 'a')

1: prepare x as select 1

1: prepare x as select 1

1: prepare x as select nope

1: prepare x as selec

1: prepare x as select * from nope

1: prepare x(nope) as select 1

1: execute x

1: select s.mood('a')

1: select mood('c')

1: select public.mood('c'), s.mood('b')::text

1: select s.mood('nope')

1: select s.mood(1)

1: select s.mood('a', 'b')

1: select s.mood('a'::text)

1: select s.mood(m) from t

1: select s.nope('a')

1: select x.mood('a')

1: select text(m) from t

1: select s.mood(null)

1: create view v as select 1 as a

1: create view v1 as select 1 as a

1: create view v2 as select a from v1

1: create view v3 as select a from v2

1: create or replace view v1 as select a from v3

1: select * from v1

1: create or replace view v1 as select 1 as a

1: select * from v1
