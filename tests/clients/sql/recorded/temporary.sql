1: create table perm (id int primary key, v text)

1: insert into perm values (1,'a'),(2,'b')

1: create temp table t (id int primary key, v text unique, n int check (n > 0))

1: insert into t values (1,'x',1),(2,'y',2)

1: select * from t order by id

1: select * from t where id = 2

1: select * from t where v = 'x'

1: select t.id, perm.v from t join perm using (id) order by 1

1: insert into t values (1,'z',1)

1: insert into t values (3,'x',1)

1: insert into t values (3,'q',0)

1: update t set n = n + 10 where id = 1

1: select * from t order by n desc

1: delete from t where id = 2

1: select count(*) from t

2: select * from t

2: create temp table t (a int)

2: insert into t values (42)

2: select * from t

1: select * from t

1: create temp table t (a int)

1: create temp table if not exists t (a int)

1: create temporary table s (id serial primary key, g int generated always as identity, d int default 5, x int generated always as (d * 2) stored)

1: insert into s default values

1: insert into s (d) values (7), (8)

1: select * from s order by id

1: select nextval('s_id_seq'), currval('s_id_seq'), lastval()

1: truncate s restart identity

1: insert into s default values

1: select * from s

1: create temp table perm (a int)

1: insert into perm values (99)

1: select * from perm

1: select * from public.perm order by id

1: select * from pg_temp.perm

1: drop table perm

1: select * from perm order by id

1: begin

1: create temp table r (a int)

1: insert into r values (1),(2)

1: savepoint a

1: insert into r values (3)

1: create temp table r2 (a int)

1: rollback to a

1: select * from r order by a

1: select * from r2

1: rollback

1: select * from r

1: begin

1: create temp table r (a int)

1: insert into r values (1)

1: insert into perm values (3,'c')

1: commit

1: select * from r

1: select * from perm order by id

1: begin

1: insert into r values (2)

1: insert into perm values (4,'d')

1: rollback

1: select (select count(*) from r), (select count(*) from perm)

1: create temp table dr (a int) on commit delete rows

1: begin

1: insert into dr values (1),(2)

1: select count(*) from dr

1: commit

1: select count(*) from dr

1: begin

1: create temp table dd (a int) on commit drop

1: insert into dd values (1)

1: select * from dd

1: commit

1: select * from dd

1: create table notemp (a int) on commit drop

1: create temp table pr on commit preserve rows as select * from perm

1: select * from pr order by id

1: select * into temp si from perm where id < 3

1: select * from si order by id

1: select id, v into temporary table si2 from perm union all select 9, 'z'

1: select * from si2 order by id

1: create index on t (n)

1: create unique index tu on t (n) where n > 100

1: alter table t add column extra text default 'e'

1: select * from t

1: alter table t rename column extra to more

1: alter table t rename to tt

1: select * from tt

1: alter table tt drop column more

1: alter table tt alter column n type bigint

1: select * from tt

1: create view vt as select id from tt

1: select * from vt

1: drop table tt

1: drop table tt cascade

1: select * from vt

1: create temp view tv as select v from perm

1: select * from tv order by v

2: select * from tv

1: create temp sequence sq start 5

1: select nextval('sq'), nextval('pg_temp.sq')

1: select relname, relpersistence from pg_class where relname in ('s','dr','perm','sq') order by 1

1: select table_name, table_type from information_schema.tables where table_name in ('s','dr','perm') order by 1

1: select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace where relname = 's'

1: select pg_my_temp_schema()::regnamespace::text

1: select current_schemas(true)

1: select current_schemas(false), current_schema()

1: copy s (d) from stdin
10
11
12

1: select count(*), sum(d) from s

1: create temp table fk (a int references perm (id))

1: create temp table pk (id int primary key)

1: create temp table fk (a int references pk)

1: insert into fk values (1)

1: insert into pk values (1)

1: insert into fk values (1)

1: delete from pk

1: create table pfk (a int references pk)

1: truncate pk

1: truncate pk cascade

1: select count(*) from fk

1: create table plan (a int, b int)

1: create temp table plan (a int, b int)

1: insert into plan values (7,8)

1: drop table plan

1: begin

1: declare c cursor for select * from s order by id

1: fetch 1 from c

1: insert into s (d) values (100)

1: fetch all from c

1: commit

1: insert into s (d) select d from s

1: select count(*) from s

1: insert into perm select id + 100, 'from temp' from s where id < 3 on conflict do nothing

1: select count(*) from perm

1: update perm set v = 'u' from s where perm.id = s.id

1: delete from s using perm where perm.id = s.id

1: select count(*) from s

1: merge into s using perm on s.id = perm.id when matched then delete when not matched then insert (d) values (perm.id)

1: insert into s (id, d) values (50, 1) on conflict (id) do update set d = s.d + 1 returning id, d

1: insert into s (id, d) values (50, 1) on conflict (id) do update set d = s.d + 1 returning id, d

1: select id from s order by id for update

1: comment on table s is 'hello'

1: select obj_description('s'::regclass)

1: grant select on s to public

1: select has_table_privilege('s','select'), has_database_privilege(current_database(), 'TEMP')

1: discard temp

1: select * from s

1: create temp table a1 (a int)

1: close

1: select * from a1

1: begin read only

1: create temp table ro (a int)

1: rollback

1: create temp table ro (a int)

1: begin read only

1: insert into ro values (1)

1: commit

1: select * from ro

1: begin isolation level serializable

1: insert into ro values (2)

1: select count(*) from ro, perm

1: commit

1: begin isolation level read committed

1: insert into ro values (3)

1: update ro set a = a + 1

1: select * from ro order by a for update

1: delete from ro where a = 2

1: commit

1: select * from ro order by a

1: create temp table public.x (a int)

1: create table pg_temp.y (a int)

1: select * from y

1: set search_path = pg_temp, public

1: create table z (a int)

1: reset search_path

1: select relpersistence from pg_class where relname = 'z'

1: alter table z set schema public

1: discard all

1: select * from z

1: create table src (id int primary key, v text not null default 'd', w int check (w > 0), g int generated always as (w * 2) stored, u int unique)

1: create temp table l0 (like src)

1: insert into l0 (id, v, w) values (1, 'x', -1)

1: select * from l0

1: insert into l0 (id) values (2)

1: create temp table l1 (like src including all, extra int)

1: insert into l1 (id, w, u) values (1, 5, 1)

1: insert into l1 (id, w, u) values (2, 5, 1)

1: insert into l1 (id, w, u) values (1, 5, 2)

1: insert into l1 (id, w, u) values (3, 0, 3)

1: select * from l1

1: select conname from pg_constraint where conrelid = 'l1'::regclass order by 1

1: create temp table l2 (like src including defaults including generated)

1: insert into l2 (id, w, u) values (1, 5, 1), (1, 5, 1)

1: select * from l2

1: begin

1: insert into l1 (id, w, u) values (7, 5, 7)

1: savepoint a

1: alter table l1 add column late int default 3

1: create index on l1 (late)

1: truncate l1

1: select count(*) from l1

1: rollback to a

1: select * from l1 order by id

1: drop table l2

1: rollback

1: select count(*) from l2

1: select * from l1 order by id

1: create temp table deep (id int primary key, parent int references deep deferrable initially deferred)

1: begin

1: insert into deep values (2, 1)

1: insert into deep values (1, null)

1: commit

1: insert into deep values (5, 4)

1: select count(*) from deep

1: with x as (insert into l0 (id, v) values (50, 'cte') returning id) select * from x

1: create table kept as select id from l0 order by id

1: select * from kept

2: select count(*) from l0

2: select * from kept

1: insert into l0 (id, v) select g, 'many' from generate_series(1000, 3000) g

1: select count(*), sum(id) from l0

1: update l0 set v = 'changed' where id > 2000

1: select v, count(*) from l0 group by v order by v

1: delete from l0 where id >= 1000

1: select count(*) from l0

1: create unique index on l0 (id)

1: insert into l0 (id, v) values (50, 'again')

1: select l.id, p.v from l0 l left join perm p on p.id = l.id order by 1

1: select count(*) from l0 where exists (select 1 from perm where perm.id = l0.id)

1: alter sequence sq restart

1: create temp table seqs (id int default nextval('sq2'))

1: create temp sequence sq2 increment 10

1: create temp table seqs (id int default nextval('sq2'), v text)

1: insert into seqs (v) values ('a'), ('b')

1: select * from seqs order by id

1: begin

1: alter sequence sq2 restart with 500

1: insert into seqs (v) values ('c')

1: rollback

1: insert into seqs (v) values ('d')

1: select id, v from seqs order by id

1: select setval('sq2', 7)

1: select last_value, is_called from sq2

1: alter table l0 rename column v to vv

1: select vv from l0 order by id

1: drop sequence sq2

1: drop sequence sq2 cascade

1: insert into seqs (v) values ('e')

1: select id from seqs where v = 'e'
