-- What is not there, in a schema that is there or is not: which of them is told, and how it is called.
create index on nowhere.t (id)
create index on other.t (id)
create index on nix (id)
truncate nowhere.t
truncate dept, nowhere.t
truncate other.t
truncate nix
comment on table nowhere.t is 'x'
comment on table other.t is 'x'
comment on table nix is 'x'
comment on view nowhere.t is 'x'
comment on sequence nowhere.t is 'x'
comment on index nowhere.t is 'x'
comment on index other.t is 'x'
comment on column nowhere.t.id is 'x'
comment on column other.t.id is 'x'
comment on constraint c on nowhere.t is 'x'
comment on constraint c on other.t is 'x'
grant select on nowhere.t to public
grant select on other.t to public
grant select on nix to public
grant select (id) on nowhere.t to public
grant usage on sequence nowhere.q to public
grant usage on sequence other.q to public
revoke select on nowhere.t from public
analyze nowhere.t
analyze other.t
analyze nix
create table l (like nowhere.t)
create table l (like other.t)
copy nowhere.t to stdout
copy other.t to stdout
copy nowhere.t from stdin
alter table nowhere.t set schema public
alter table other.t set schema public
alter table dept set schema nowhere
alter view nowhere.t set schema public
alter view other.t set schema public
alter sequence nowhere.t set schema public
alter sequence other.t set schema public
alter sequence other.t restart
alter sequence nowhere.t restart
alter index other.i rename to j
alter table other.t rename to u
alter table nowhere.t rename to u
alter table nowhere.t add column a int
select * from nowhere.t
select * from other.t
insert into nowhere.t values (1)
insert into other.t values (1)
update nowhere.t set id = 1
update other.t set id = 1
delete from nowhere.t
delete from other.t
select pg_get_serial_sequence('nowhere.t', 'id')
select pg_get_serial_sequence('other.t', 'id')
drop table nowhere.t
drop table other.t
drop table nix
drop view nix
drop view dept
drop sequence other.nix
drop sequence dept
drop index other.nix
insert into other.felt values (1, 'sad')
insert into felt values (9, 'wild')
select 'sad'::other.mood
select 'wild'::mood
set search_path = other ;; insert into felt values (1, 'sad')
set search_path = other ;; select 'wild'::public.mood
set search_path = other, public ;; insert into public.felt values (9, 'wild')
