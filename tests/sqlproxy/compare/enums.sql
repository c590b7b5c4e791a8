-- enums: order as declared, casts, operators, functions, mistakes
select * from felt order by id
select id, m from felt order by m, id
select id, m from felt order by m desc nulls last, id
select id from felt where m > 'sad' order by id
select id from felt where m >= 'so-so' and m < 'happy' order by id
select id from felt where m between 'sad' and 'ok' order by id
select id from felt where m in ('happy', 'sad') order by id
select id from felt where m not in ('happy', 'sad') order by id
select id from felt where m <> 'ok' order by id
select id from felt where m is distinct from 'ok' order by id
select id from felt where m = any ('{ok,happy}') order by id
select id from felt where m = any (array['ok', 'happy']::mood[]) order by id
select id from felt where m = d order by id
select id from felt where m > d order by id
select id from felt where 'ok' = m order by id
select id from felt where m = 'OK'
select id from felt where m = 'bad'
select id from felt where m = ''
select id from felt where m = 'ok'::text
select id from felt where m::text = 'ok' order by id
select id from felt where m like 'o%'
select id from felt where m::text like 'o%' order by id
select id from felt where m = 1
select m = e from felt, (select 'red'::color as e) c
select 'sad'::mood, 'ok'::text::mood, cast('happy' as mood), mood 'so-so', mood('ok')
select 'ok'::mood::text, 'ok'::mood::varchar(1), 'ok'::mood::name, 'ok'::mood::varchar
select 'ok'::mood::int
select 1::mood
select null::mood, null::mood is null
select 'sad'::mood < 'ok'::mood, 'sad' < 'ok'::mood, 'happy'::mood >= 'ok', 'ok'::mood = 'ok', 'ok'::mood <> 'sad'
select 'ok'::mood < 'red'::color
select 'ok'::mood || 'x', 'a' || 'ok'::mood
select upper('ok'::mood)
select upper('ok'::mood::text), length('happy'::mood::text)
select coalesce(m, 'sad') from felt order by id
select coalesce(m, 'sad'::mood), coalesce(m::text, 'none') from felt order by id
select case when m > 'sad' then m else 'sad' end from felt order by id
select case m when 'ok' then 1 when 'happy' then 2 else 0 end from felt order by id
select nullif(m, 'ok') from felt order by id
select greatest(m, d), least(m, d) from felt order by id
select greatest('sad', m, 'ok') from felt order by id
select coalesce(m, 'x'::text) from felt
select min(m), max(m), count(m), count(distinct m) from felt
select max(m) from felt where m < 'ok'
select min(m) filter (where m > 'sad') from felt
select m, count(*) from felt group by m order by m
select m, count(*), min(id) from felt group by m having m > 'sad' order by m desc
select distinct m from felt order by m
select distinct on (m) m, id from felt order by m, id desc
select array_agg(m order by m desc) from felt
select array_agg(m order by id) from felt
select string_agg(m::text, ',' order by m) from felt
select string_agg(m, ',') from felt
select sum(m) from felt
select avg(m) from felt
select mode() within group (order by m) from felt
select percentile_disc(0.5) within group (order by m) from felt
select rank() over (order by m), dense_rank() over (order by m desc) from felt order by id
select lag(m) over (order by id), first_value(m) over (order by m) from felt order by id
select a.id, b.id from felt a join felt b on a.m = b.d order by a.id, b.id
select a.id, b.id from felt a join felt b using (m) where a.id < b.id order by a.id
select id from felt where m = (select max(m) from felt) order by id
select id from felt where m in (select d from felt) order by id
select id from felt where exists (select 1 from felt f where f.d > felt.m) order by id
select m from felt union select d from felt order by m
select m from felt intersect select d from felt order by 1
select m from felt union select 'ok' order by 1
select m from felt union select 'x'::text
select * from (values ('ok'::mood), ('sad')) v (m) order by m
select enum_first(null::mood), enum_last(null::mood), enum_range(null::mood)
select enum_range('so-so'::mood, 'ok'::mood), enum_range(null, 'ok'::mood), enum_range('ok'::mood, null)
select enum_first('ok'::mood), enum_last(m) from felt where id = 1
select enum_first(null)
select enum_range(1)
select enum_first(null::none)
select enum_range(null::none)
select ms, ms[1], ms[2:], cardinality(ms), array_length(ms, 1) from felt order by id
select id from felt where 'ok' = any (ms) order by id
select id from felt where ms @> '{sad}' order by id
select id from felt where ms && array['happy']::mood[] order by id
select id from felt order by ms, id
select unnest(ms) as u from felt order by u
select ms || 'sad'::mood, array_append(ms, 'ok'), array_position(ms, 'ok') from felt order by id
select array_to_string(ms, '-') from felt order by id
select array['ok', 'sad']::mood[], array['ok'::mood, 'sad'], '{ok,sad}'::mood[], '{}'::mood[]
select '{ok,bad}'::mood[]
select array['ok', 'bad']::mood[]
select ms::text, ms::text[] from felt order by id
select '{ok,sad}'::text[]::mood[]
select array['ok', 'sad']::mood[] < array['ok', 'happy']::mood[]
select row_to_json(f) from (select m, ms from felt where id <> 3) f
select to_json(m), to_jsonb(ms) from felt order by id
select json_agg(m order by id) from felt
select jsonb_build_object('m', m) from felt order by id
select pg_typeof('ok'::mood), pg_typeof('{}'::mood[])
select format('%s %L', 'ok'::mood, 'sad'::mood), concat('ok'::mood, 1)
select quote_literal('ok'::mood)
select row('ok'::mood, 1) < row('happy'::mood, 0)
insert into felt (id, m) values (9, 'bad')
insert into felt (id, m) values (9, 'so-so') returning *
insert into felt (id, m) values (9, 'ok'::text)
insert into felt (id, m) select 9, 'ok' ;; select m from felt where id = 9
insert into felt (id, m) select 9, t from (select 'ok'::text as t) x
insert into felt (id, m) select 9, max(m) from felt returning m
insert into felt values (1, 'ok') on conflict (id) do update set m = excluded.m, d = felt.m returning *
update felt set m = 'happy' where m = 'ok' returning id, m
update felt set m = d where m > d ;; select id, m from felt order by id
update felt set m = 'bad'
update felt set m = null, ms = ms || 'happy'::mood where id = 2 returning m, ms
delete from felt where m >= 'ok' ;; select id from felt order by id
prepare p as select id from felt where m = $1 order by id ;; execute p ('ok') ;; execute p ('bad')
prepare p (mood) as select $1, $1 > 'sad' ;; execute p ('ok')
prepare p (text) as select id from felt where m = $1
explain (costs off, foo) select m from felt
create type mood as enum ('x')
create type felt as enum ('x')
create table mood (a int)
create view mood as select 1 as a
create type twice as enum ('a', 'b', 'a')
create type long as enum ('0123456789012345678901234567890123456789012345678901234567890123')
create type nosuch.x as enum ('a')
create table t2 (m nosuch)
create table t2 (m mood default 'bad')
create table t2 (m mood(3))
create table t2 (m mood primary key, x int) ;; insert into t2 values ('ok', 1), ('sad', 2) ;; select * from t2 order by m ;; insert into t2 values ('ok', 3)
create table t2 (m color references felt)
create table t2 (m mood check (m > 'bad'))
alter table felt alter m type color
alter table felt alter id type mood
alter table felt alter m set default 'bad'
alter type mood add value 'ok'
alter type mood add value 'x' before 'y'
alter type nosuch add value 'x'
alter type mood rename value 'y' to 'x'
alter type mood rename value 'sad' to 'ok'
alter type mood rename to color
alter type mood rename to felt
alter type nosuch rename to x
alter type int4 add value 'x'
drop type nosuch
drop type if exists nosuch
drop type mood
select 'ok'::nosuch
select 'ok'::public.mood, 'ok'::pg_catalog.mood
