select * from t
select t.* from t
select x.a, x.b as bee from t x
select t.*, u.x from t join u using (a) where b = $1 and x > 5 order by 1 limit $2
select * from t join u using (a)
select * from t natural join u
select * from t full join u using (a)
select * from t left join u on t.a = u.a where u.v is null
select a from t join u on true
select a, count(*), sum(x), avg(c), min(v), max(d) from t join u using (a) group by a
select b, count(*) from t group by a
select b, c from t group by c
select b, count(*) from t
select b from t group by 1 having count(*) > 1 order by b
select count(distinct b), string_agg(b, ',' order by b) from t
select sum(a), sum(a::bigint), sum(c), sum(1.5::float4), avg(a), avg(1.5::float8), stddev(a), bool_and(true), array_agg(b) from t
select every(a > 1), count(*) filter (where b = 'x'), percentile_cont(0.5) within group (order by a) from t
select row_number() over (partition by b order by a), rank() over w, lag(a) over w, sum(c) over w from t window w as (order by c)
select a from t where row_number() over () = 1
select a from t where count(*) > 1
select sum(count(*)) from t
select a, sum(c) over () from t group by a
select * from t where a in (select a from u)
select * from t where (a, b) in (select a, v from u)
select * from t where a in (select a, x from u)
select (select x from u where u.a = t.a) from t
select (select x, a from u) from t
select exists (select 1 from u where u.a = t.a), array(select x from u) from t
select * from (select a, b from t) s(x) where x = 1
select * from (values (1, 'a'), (2, 'b')) as v(n, s)
select * from (values (1), (2.5)) v
values (1, 'x'), (2, null)
values (1), (1, 2)
select 1 union select 2.5 order by 1
select a from t union all select x from u order by a desc
select a, b from t union select a from u
select 1 union select 'x'
select null union select 1
select a from t intersect select a from u
select a from t except select a from u order by nocolumn
with q as (select a, b from t) select * from q
with q(x) as (select a, b from t) select x, b from q
with recursive r(n) as (select 1 union all select n + 1 from r where n < 10) select * from r
with q as (insert into t (a) values (1) returning a, b) select * from q
with q as (select 1), q as (select 2) select * from q
select distinct b from t order by a
select distinct on (b) b, a from t order by b, a
select distinct on (b) b, a from t order by a
select a from t order by 5
select a from t order by 'x'
select a as b, b as a from t order by b
select a from t limit 'x'
select a from t limit a
select a from t limit $1 offset $2
select a from t fetch first 3 rows with ties
select a from t for update
select a from t for update of u
select count(*) from t for update
select * from generate_series(1, 3) g
select * from generate_series(1, 3) g(i), t where t.a = i
select * from json_each('{"a":1}')
select * from unnest(array[1, 2]) with ordinality as x(v, n)
select x.a, y.x from t x, lateral (select x from u where u.a = x.a) y
select * from t x, u where x.a = y.a
select t.a from t x
select a from t, t
select a from t x, u x
select nocolumn from t
select t.nocolumn from t
select x.a from t
select * from nosuch
select * from public.t
select * from nosuch.t
select public.t.a from public.t
select * from w
select b from w where a = $1
select * from t where b
select * from t where a = 'x'
select * from t where a = '5'
select * from t where a = $1 and b = $2 and c > $3 and d < $4
select * from t where a = any($1)
select * from t where a in ($1, $2)
select * from t where a between $1 and $2
select * from t where b like $1
select * from t where a + $1 > 5
select * from u where arr @> $1 and j ->> $2 = $3
select $1::int, $2::text, $3::timestamptz
select $1
select $1 + $2
select $1 = $1
select coalesce($1, 5), case when true then $2 else 1.5 end
select $1::varchar = b from t
select array[$1, 2], upper($2), length($3), abs($4::numeric)
select a + 1, a || 'x', c * 2, -c, c / 3, b::varchar(5), c::numeric(5,1), d::date from t
select a as "A b", b "c" from t
select case when a = 1 then 'x' end, coalesce(b, 'x'), nullif(a, 1), greatest(a, 2), array[1], row(1) is null, (select 1), current_date, cast(a as text), a::text, max(a) over () from t
select extract(year from d), date_trunc('day', d), substring(b from 1 for 2), trim(b), position('x' in b), b collate "C" from t
select arr[1], arr[1:2], j -> 'a', j #>> '{a}' from u
select lower(b) from t group by lower(b) order by lower(b)
select lower(b) from t group by b
select a from t group by a, b having b > 'x'
select grouping(b), b, count(*) from t group by rollup (b)
select a from t group by 2
select count(*) from t group by count(*)
select unnest(arr) from u
select a from u where unnest(arr) = 1
insert into t values (1)
insert into t (a, b, c) values ($1, $2, $3)
insert into t (a, b) values (1, default), ($1, 'x') returning *
insert into t (a) values (1) returning a + 1 as n, b, t.c
insert into t (a, b) values (1)
insert into t (a) values (1, 2)
insert into t values (1, 2, 3, 4, 5, 6)
insert into t (a, a) values (1, 2)
insert into t (nocolumn) values (1)
insert into t (a) values ('x')
insert into t (a) values (true)
insert into t (a, g) values (1, 2)
insert into t (a) values (b)
insert into t (a) values (1), (2, 3)
insert into t (a, b) select a, v from u
insert into t (a, b) select $1, $2
insert into t (a, d) select a, v from u
insert into t (a, b, c) select x, 1, true from u
insert into t default values
insert into t (a, b) values (1, 'x') on conflict do nothing
insert into t (a, b) values (1, 'x') on conflict (a) do update set b = excluded.b, c = t.c + 1 where t.a > $1 returning *
insert into t (a, b) values (1, 'x') on conflict (c) do nothing
insert into t (a, b) values (1, 'x') on conflict on constraint t_b_key do update set b = 'y'
insert into t (a, b) values (1, 'x') on conflict on constraint nosuch do nothing
insert into t (a, b) values (1, 'x') on conflict do update set b = 'y'
insert into t (a) values (count(*))
insert into nosuch values (1)
update t set b = 'x', c = c + 1 where a = $1 returning *
update t set b = $1, c = $2, d = $3
update t set b = 1
update t set a = 'x'
update t set a = b
update t set b = 'x', b = 'y'
update t set nocolumn = 1
update t set g = 1
update t set g = default
update t set (b, c) = ('x', 1)
update t set (b, c) = ('x', 1, 2)
update t set b = u.v from u where u.a = t.a returning t.a, u.x
update t x set b = 'y' where x.a = 1
update t x set b = 'y' where t.a = 1
update t set c = sum(1)
delete from t where a = $1
delete from t using u where t.a = u.a and u.x = $1 returning *
delete from t x where x.b = 'z' returning x.a
delete from nosuch
merge into t using u on t.a = u.a when matched then update set b = u.v when not matched then insert (a, b) values (u.a, u.v)
merge into t using u on t.a = u.a when not matched then insert (a, b) values (t.a, 'x')
select now(), current_timestamp(2), localtimestamp, current_user, current_schema
select pg_sleep(0)
select * from t where t = 1
select 1 as one, 2 as one
select nextval('s'), currval('s'), setval('s', 5), lastval()
select a from t where a = 1 or
select from t
select
selec 1
select 'é', nocolumn from t
select * from t tablesample bernoulli (10)
select $1 between 1 and 2.5
select $1 not between 1 and 2.5, $2 between symmetric 3 and 1.5
select $1 between a and c from t
select sum(a) over (order by a rows a preceding) from t
select sum(a) over (order by a range between 1 preceding and a + 1 following) from t
select (select sum(x) over (order by x groups t.a preceding) from u limit 1) from t
merge into t using u on t.a = u.a when matched then delete when matched and u.x > 1 then do nothing
merge into t using u on t.a = u.a when not matched then do nothing when matched then delete when not matched then insert (a) values (u.a)
merge into t using u on t.a = u.a when matched and u.x > 1 then delete when matched then do nothing when not matched then insert default values
select grouping(a) from t
select grouping(b), count(*) from t group by a
select b, grouping(b), grouping(a + 1) from t group by b, a
select grouping(a + 1), a + 1 from t group by a + 1
select grouping(b) from t group by b having grouping(a) = 0
select b from t where grouping(b) = 0 group by b
select b from t group by grouping(b)
select grouping(b) as x from t group by x
select t.b from t join u on grouping(t.b) = 0 group by t.b
select sum(grouping(b)) from t group by b
select grouping(sum(a)) from t group by b
select grouping(b), c from t group by b
select b from t group by b order by grouping(c)
select sum(a) filter (where grouping(b) = 0) from t group by b
select rank() over (order by grouping(b)) from t group by b
update t set b = grouping(a)
select grouping(1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32) from t
select sum(a) filter (where sum(a) > 0) from t
select sum(a) filter (where rank() over () > 1) from t
select sum(a) filter (where unnest(array[true])) from t
select percentile_cont(0.5) within group (order by a) filter (where max(a) > 0) from t
select sum(a) filter (where (select max(x) from u) > 0) from t
select b from t group by b having sum(a) filter (where count(*) > 1) > 1
select 1 + count(*) from t group by 1
select sum(a) over () filter (where true) from t
select * from t limit count(*)
select * from t limit grouping(t.a)
select * from t limit row_number() over ()
select * from t limit generate_series(1, 3)
select * from t offset count(*)
select * from t offset grouping(t.a)
select * from t offset row_number() over ()
select * from t offset generate_series(1, 3)
select t.a from t, lateral generate_series(1, count(*)) s
select t.a from t, lateral generate_series(1, grouping(t.a)) s
select t.a from t, lateral generate_series(1, row_number() over ()) s
select t.a from t, lateral generate_series(1, generate_series(1, 3)) s
select * from generate_series(1, count(*)) s
select * from generate_series(1, grouping(t.a)) s
select * from generate_series(1, row_number() over ()) s
select * from generate_series(1, generate_series(1, 3)) s
insert into t (a) values (count(*))
insert into t (a) values (grouping(t.a))
insert into t (a) values (row_number() over ())
insert into t (a) values (generate_series(1, 3))
update t set a = count(*)
update t set a = grouping(t.a)
update t set a = row_number() over ()
update t set a = generate_series(1, 3)
delete from t where a = count(*)
delete from t where a = grouping(t.a)
delete from t where a = row_number() over ()
delete from t where a = generate_series(1, 3)
delete from t returning count(*)
delete from t returning grouping(t.a)
delete from t returning row_number() over ()
delete from t returning generate_series(1, 3)
insert into t (a) values (1) on conflict (a) do update set a = count(*)
insert into t (a) values (1) on conflict (a) do update set a = grouping(t.a)
insert into t (a) values (1) on conflict (a) do update set a = row_number() over ()
insert into t (a) values (1) on conflict (a) do update set a = generate_series(1, 3)
insert into t (a) values (1) on conflict (a) do update set a = 1 where t.a = count(*)
insert into t (a) values (1) on conflict (a) do update set a = 1 where t.a = grouping(t.a)
insert into t (a) values (1) on conflict (a) do update set a = 1 where t.a = row_number() over ()
insert into t (a) values (1) on conflict (a) do update set a = 1 where t.a = generate_series(1, 3)
select a from t having count(*) > 1
select a from t having grouping(t.a) > 1
select a from t having row_number() over () > 1
select a from t having generate_series(1, 3) > 1
select a from t where count(*) > 1
select a from t where grouping(t.a) > 1
select a from t where row_number() over () > 1
select a from t where generate_series(1, 3) > 1
select t.a from t join u on count(*) > 1
select t.a from t join u on grouping(t.a) > 1
select t.a from t join u on row_number() over () > 1
select t.a from t join u on generate_series(1, 3) > 1
select a from t group by a, count(*)
select a from t group by a, grouping(t.a)
select a from t group by a, row_number() over ()
select a from t group by a, generate_series(1, 3)
select sum(a) over (partition by count(*)) from t
select sum(a) over (partition by grouping(t.a)) from t
select sum(a) over (partition by row_number() over ()) from t
select sum(a) over (partition by generate_series(1, 3)) from t
select sum(a) over (order by a rows count(*) preceding) from t
select sum(a) over (order by a rows grouping(t.a) preceding) from t
select sum(a) over (order by a rows row_number() over () preceding) from t
select sum(a) over (order by a rows generate_series(1, 3) preceding) from t
select sum(count(*)) from t
select sum(grouping(t.a)) from t
select sum(row_number() over ()) from t
select sum(generate_series(1, 3)) from t
select sum(a order by count(*)) from t
select sum(a order by grouping(t.a)) from t
select sum(a order by row_number() over ()) from t
select sum(a order by generate_series(1, 3)) from t
select distinct on (count(*)) a from t
select distinct on (grouping(t.a)) a from t
select distinct on (row_number() over ()) a from t
select distinct on (generate_series(1, 3)) a from t
select a from t order by count(*)
select a from t order by grouping(t.a)
select a from t order by row_number() over ()
select a from t order by generate_series(1, 3)
select coalesce(count(*), 1) from t
select coalesce(grouping(t.a), 1) from t
select coalesce(row_number() over (), 1) from t
select coalesce(generate_series(1, 3), 1) from t
select case when a = 1 then count(*) end from t
select case when a = 1 then grouping(t.a) end from t
select case when a = 1 then row_number() over () end from t
select case when a = 1 then generate_series(1, 3) end from t
values (count(*))
values (grouping(t.a))
values (row_number() over ())
values (generate_series(1, 3))
select lag(count(*)) over () from t
select lag(grouping(t.a)) over () from t
select lag(row_number() over ()) over () from t
select lag(generate_series(1, 3)) over () from t
select percentile_cont(count(*)) within group (order by a) from t
select percentile_cont(grouping(t.a)) within group (order by a) from t
select percentile_cont(row_number() over ()) within group (order by a) from t
select percentile_cont(generate_series(1, 3)) within group (order by a) from t
merge into t using u on t.a = count(*) when matched then delete
merge into t using u on t.a = grouping(t.a) when matched then delete
merge into t using u on t.a = row_number() over () when matched then delete
merge into t using u on t.a = generate_series(1, 3) when matched then delete
merge into t using u on t.a = u.a when matched and count(*) > 1 then delete
merge into t using u on t.a = u.a when matched and grouping(t.a) > 1 then delete
merge into t using u on t.a = u.a when matched and row_number() over () > 1 then delete
merge into t using u on t.a = u.a when matched and generate_series(1, 3) > 1 then delete
merge into t using u on t.a = u.a when matched then update set a = count(*)
merge into t using u on t.a = u.a when matched then update set a = grouping(t.a)
merge into t using u on t.a = u.a when matched then update set a = row_number() over ()
merge into t using u on t.a = u.a when matched then update set a = generate_series(1, 3)
merge into t using u on t.a = u.a when not matched then insert (a) values (count(*))
merge into t using u on t.a = u.a when not matched then insert (a) values (grouping(t.a))
merge into t using u on t.a = u.a when not matched then insert (a) values (row_number() over ())
merge into t using u on t.a = u.a when not matched then insert (a) values (generate_series(1, 3))
select (select count(*)) from t
select (select grouping(t.a)) from t
select (select row_number() over ()) from t
select (select generate_series(1, 3)) from t
select count(*) union select 1 order by 1
select grouping(t.a) union select 1 order by 1
select row_number() over () union select 1 order by 1
select generate_series(1, 3) union select 1 order by 1
select * from (values (count(*))) v
select * from (values (grouping(t.a))) v
select * from (values (row_number() over ())) v
select * from (values (generate_series(1, 3))) v
select array[count(*)] from t
select array[grouping(t.a)] from t
select array[row_number() over ()] from t
select array[generate_series(1, 3)] from t
select a from t where a in (count(*))
select a from t where a in (grouping(t.a))
select a from t where a in (row_number() over ())
select a from t where a in (generate_series(1, 3))
select a from t where a = any (array[count(*)])
select a from t where a = any (array[grouping(t.a)])
select a from t where a = any (array[row_number() over ()])
select a from t where a = any (array[generate_series(1, 3)])
select * from t, (select t.a) x
select * from t join (select t.b from u) z on true
select * from t left join lateral (select t.a) x on true, (select x.a) y
insert into t (a) values (t.a)
insert into t (a) select t.a
insert into t (a) select u.x from u where t.a = 1
insert into t as v (a) values (v.a)
insert into t as v (a) values (t.a)
update t set a = 1 from (select t.a) x
update t as v set a = t.a
delete from t using (select t.b) x where true
select (select u.x) from t
select t.a from t x
select x.a from t, u where x.a = 1
select * from (select * from t) x where t.a = 1
select * from u, lateral (select t.a) x, t
select * from t union select t.a, null, null, null, null from u
insert into t (a) values (generate_series(1, 3) + 1)
insert into t (a, b) values (generate_series(1, 3), 'x')
insert into t (a, b) values (generate_series(1, 3), $1)
insert into t (a, b) values (unnest(array[1, 2]), unnest(array['a', 'b'])) returning b
insert into t (a) values (generate_series(1, 3)), (1)
insert into t (a, b) values (generate_series(1, 3), count(*))
insert into t (a, b) values (generate_series(1, 3), row_number() over ())
insert into t (a, b) values (generate_series(1, 3), 'x', 1)
insert into t (a, b) values (generate_series(1, 3))
insert into t values (generate_series(1, 3))
select distinct on (b) a from t group by a
select sum(rank() over ()) over () from t
select lag(max(max(a))) over () from t
select lag(sum(a) filter (where row_number() over () > 1)) over () from t
select sum(a) over (order by a groups count(*) following) from t
select sum(a) over (order by a range count(*) following) from t
select sum(a) over (order by a rows row_number() over () following) from t
select sum(a) over (order by a rows between 1 preceding and (select max(x) from u) following) from t
select string_agg(b, ',' order by max(a)) from t
select percentile_cont(0.5) within group (order by generate_series(1, 3)) from t
select percentile_cont(0.5) within group (order by max(a)) from t
select percentile_cont(max(a)) within group (order by a) from t
select * from rows from (generate_series(1, 2), generate_series(1, max(1))) r
select * from unnest(array[count(*)]) r
select * from abs(generate_series(1, 3)) r
select * from generate_series(1, (select max(a)::int from t)) r
select row_number() over () from t group by 1
select row_number() over () as x from t group by x
insert into t (a, b) values (generate_series(1, 3), default)
insert into t (a, b) select 1
declare c cursor with hold for select a from t for update
declare c scroll cursor for select a from t for share
declare c insensitive cursor for select a from t for no key update
declare c scroll no scroll cursor for select 1
declare c insensitive asensitive cursor for select 1
declare c insensitive scroll cursor with hold for select 1
declare c no scroll cursor for select a from t for key share
with recursive r(a) as (select 'x'::varchar(3) union all select 'y' from r) select * from r
with recursive r(a) as (select 'x'::varchar(3) union all select a from r) select * from r
with recursive r(a) as (select 'x'::varchar(3) union all select a || 'y' from r) select * from r
with recursive r(a) as (select 1::numeric(5, 2) union all select a + 1 from r where a < 5) select * from r
with recursive r(a) as (select 1::numeric(5, 2) union all select (a + 1)::numeric(5, 2) from r where a < 5) select * from r
with recursive r(a) as (select 1 union all select a + 1.5 from r) select * from r
with recursive r(a) as (select 1 union all select a + 1::int8 from r) select * from r
with recursive r(a) as (select null union all select a from r) select * from r
with recursive r(a) as (select 'x' union all select a || 'y' from r where length(a) < 5) select * from r
with recursive r(a) as (select c from t union all select c + 1 from r, t) select * from r
with recursive r(a) as (select v from u union select b::varchar(10) from t, r) select * from r
with recursive r(a) as (select v from u union select b from t, r) select * from r
with recursive r(a) as (values (1), (2) union all select a + 1 from r where a < 9) select * from r
with recursive r(a, b) as (select 1 union all select a, a from r) select * from r
with recursive r(a) as (select 1 union all select 'x' from r) select * from r
with recursive r(a) as (select array[1] union all select a || 1 from r) select * from r
with recursive r(a) as (select 1::int2 union all select a from r) select * from r
with recursive r(a) as (select 1 union all select now() from r) select * from r
select string_agg(distinct b, ',' order by a) from t
select string_agg(distinct b, ',' order by b) from t
select string_agg(distinct v, ',' order by v) from u
select array_agg(distinct a order by a desc) from t
select count(distinct a order by b) from t
select array_agg(distinct a order by a + 1) from t
select array_agg(distinct a + 1 order by a + 1) from t
select sum(a) over (w) from t window w as (order by a rows 1 preceding)
select sum(a) over (w order by a) from t window w as (rows 1 preceding)
select sum(a) over w2 from t window w as (order by a rows 1 preceding), w2 as (w)
select sum(a) over (w) from t window w as (order by a)
select sum(a) over (w rows 1 preceding) from t window w as (order by a)
select sum(a) over (w) from t window w as (order by a range between unbounded preceding and current row)
select sum(a) over w from t window w as (order by a rows 1 preceding)
select * from t join u using (a, a)
select a from t join u using (a)
select percentile_cont(0.5) within group (order by a) over () from t
select * from generate_series(1, 2) as g(a text)
select * from json_each('{}') as g(a text, b json)
select a from t order by null
select a from t group by null
select distinct on (null) a from t
select a from t group by a for update
select a from t group by a having a > 1 for share
select count(*) from t for update
select 1 from t having true for update
select distinct a from t for no key update
select a from t full join u using (a)
select id from (values (1)) a(id) join (values (1.00)) b(id) using (id)
select id from (values (1.00)) a(id) join (values (1)) b(id) using (id)
select id from (values (1)) a(id) left join (values (1.00)) b(id) using (id)
select id from (values (1)) a(id) right join (values (1.00)) b(id) using (id)
select id from (values (1)) a(id) full join (values (1.00)) b(id) using (id)
select v from (select 'x'::varchar(10) as v) a join (select 'y'::varchar(20) as v) b using (v)
select v from (select 'x'::varchar(10) as v) a join (select 'y'::varchar(10) as v) b using (v)
select v from (select 'x'::varchar(10) as v) a full join (select 'y'::varchar(10) as v) b using (v)
select v from (select 'x'::varchar(10) as v) a left join (select 'y'::varchar(20) as v) b using (v)
select v from u a natural join (select v from u) b
select * from t, u left join (select 1 as y) c on t.a = c.y
select t.a from (t join u on true) j
select x.a from (t x join u on true) j
select j.b from (t x join u on true) j
insert into t (a, b) values (1, (select string_agg(v, ',') from unnest(array['a']) v))
insert into t (a, b) values ((jsonb_each_text('{"1": "x"}')).*)
declare c scroll cursor for select 1 for update
select array[v, v], array[v, v::text], array[c], array[c, c * 2], array(select v from u), array(select c from t) from t, u
select array[v::varchar(5), v] from u
select a, b, count(*) from t group by rollup (a)
select a, b from t group by a, rollup (c)
select a, b from t group by grouping sets ((a, c), (a))
select a, b from t group by grouping sets ((a), (c))
select a, b from t group by cube (a, c)
select a, b from t group by grouping sets ((a), rollup (a, c))
select a, b from t group by grouping sets ((a, c))
select c, (select max(x) from u where u.a = t.b::int) from t group by c
select c, (select t.b) from t group by c
select c from t group by c having exists (select 1 from u where u.a = t.a)
select 1 as a union select 2 order by b + 1
select 1 as a union select 2 order by a + 1
select a from t union select a from u order by lower(b)
