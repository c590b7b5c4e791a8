1: create schema s1

1: create role clerk_of_usage

1: create table t (a int primary key, b text)

1: create table s1.t (a int primary key)

1: create table s1.u (a int)

1: create sequence s1.q

1: create type s1.mood as enum ('a', 'b')

1: create function s1.f(int) returns int language sql as 'select $1'

1: create table k (a int)

1: grant all on t, k, s1.t, s1.u, s1.q to clerk_of_usage

1: set role clerk_of_usage

1: select 's1.t'::regclass

1: select to_regclass('s1.t')

1: select nextval('s1.q')

1: select 's1.f'::regproc

1: select to_regproc('s1.f')

1: select to_regproc('nowhere.f')

1: select 's1.f(int)'::regprocedure

1: select to_regtype('s1.mood')

1: select has_table_privilege('s1.t', 'select')

1: select has_column_privilege('s1.t', 'a', 'select')

1: select has_sequence_privilege('s1.q', 'usage')

1: select pg_get_serial_sequence('s1.' || 't', 'a')

1: select to_regclass('pg_catalog.pg_class'), 'public.t'::regclass, to_regclass('nowhere.t')

1: set search_path = s1, public

1: select 't'::regclass, count(*) from t

1: select * from u

1: reset search_path

1: reset role

1: revoke usage on schema public from public

1: set role clerk_of_usage

1: select count(*) from t

1: select 't'::regclass

1: select to_regclass('t')

1: select count(*) from public.t

1: select 'public.t'::regclass

1: select current_schema(), current_schemas(true)

1: create table made (a int)

1: create type made as enum ('a')

1: create view made as select 1

1: drop table t

1: drop table if exists t

1: drop index t_pkey

1: alter table t rename to u

1: truncate t

1: comment on table t is 'x'

1: grant select on t to public

1: reset role

1: grant usage, create on schema s1 to clerk_of_usage

1: create type mood as enum ('z')

1: create table s1.k (m mood default 'z', check (m = mood 'z'))

1: create view s1.v as select count(*) as n from t

1: grant all on s1.k, s1.v to clerk_of_usage

1: set role clerk_of_usage

1: set search_path = public, s1

1: select current_schema(), current_schemas(false)

1: insert into k values ('z')

1: insert into k values (default)

1: select count(*) from k

1: select * from v

1: select 't'::regclass::oid = 's1.t'::regclass::oid

1: create table made (a int)

1: select 's1.made'::regclass::oid = 'made'::regclass::oid

1: drop table made

1: reset role

1: reset search_path

1: select has_sequence_privilege('k', 'usage')

1: select has_sequence_privilege('k'::regclass::oid, 'usage')

1: select has_sequence_privilege('pg_class', 'usage')

1: select has_sequence_privilege(0::oid, 'usage')

1: select has_table_privilege('k', 'usage')

1: select has_table_privilege('nowhere', 'usage')

1: select has_schema_privilege('s1', 'select')

1: select has_schema_privilege('s1', 'usage, create')

1: select has_database_privilege(current_database(), 'select')

1: select pg_has_role('pg_monitor', 'drop')

1: select pg_has_role('pg_monitor', 'usage'), pg_has_role('pg_monitor', 'member with admin option')

1: select pg_has_role('nobody_at_all', 'drop')

1: drop schema s1 cascade

1: drop table t, k

1: drop role clerk_of_usage
