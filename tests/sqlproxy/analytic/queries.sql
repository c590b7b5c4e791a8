select min(id), max(id) from o where f <> 'NaN' or f is null
select count(id), count(distinct id) from o
select id, count(*) from o group by id order by id
select distinct id from o order by id desc nulls last
select a.id, b.id from o a join o b on a.id = b.id where a.id < 6 and b.id < 9 order by 1, 2
select min(cid), max(cid) from o where f <> 'NaN' or f is null
select count(cid), count(distinct cid) from o
select cid, count(*) from o group by cid order by cid
select distinct cid from o order by cid desc nulls last
select a.id, b.id from o a join o b on a.cid = b.cid where a.id < 6 and b.id < 9 order by 1, 2
select min(amount), max(amount) from o where f <> 'NaN' or f is null
select count(amount), count(distinct amount) from o
select amount, count(*) from o group by amount order by amount
select distinct amount from o order by amount desc nulls last
select a.id, b.id from o a join o b on a.amount = b.amount where a.id < 6 and b.id < 9 order by 1, 2
select min(n), max(n) from o where f <> 'NaN' or f is null
select count(n), count(distinct n) from o
select n, count(*) from o group by n order by n
select distinct n from o order by n desc nulls last
select a.id, b.id from o a join o b on a.n = b.n where a.id < 6 and b.id < 9 order by 1, 2
select min(s), max(s) from o where f <> 'NaN' or f is null
select count(s), count(distinct s) from o
select s, count(*) from o group by s order by s
select distinct s from o order by s desc nulls last
select a.id, b.id from o a join o b on a.s = b.s where a.id < 6 and b.id < 9 order by 1, 2
select min(f), max(f) from o where f <> 'NaN' or f is null
select count(f), count(distinct f) from o
select f, count(*) from o group by f order by f
select distinct f from o order by f desc nulls last
select a.id, b.id from o a join o b on a.f = b.f where a.id < 6 and b.id < 9 order by 1, 2
select min(g), max(g) from o where f <> 'NaN' or f is null
select count(g), count(distinct g) from o
select g, count(*) from o group by g order by g
select distinct g from o order by g desc nulls last
select a.id, b.id from o a join o b on a.g = b.g where a.id < 6 and b.id < 9 order by 1, 2
select min(at), max(at) from o where f <> 'NaN' or f is null
select count(at), count(distinct at) from o
select at, count(*) from o group by at order by at
select distinct at from o order by at desc nulls last
select a.id, b.id from o a join o b on a.at = b.at where a.id < 6 and b.id < 9 order by 1, 2
select min(z), max(z) from o where f <> 'NaN' or f is null
select count(z), count(distinct z) from o
select z, count(*) from o group by z order by z
select distinct z from o order by z desc nulls last
select a.id, b.id from o a join o b on a.z = b.z where a.id < 6 and b.id < 9 order by 1, 2
select count(u), count(distinct u) from o
select u, count(*) from o group by u order by u
select distinct u from o order by u desc nulls last
select a.id, b.id from o a join o b on a.u = b.u where a.id < 6 and b.id < 9 order by 1, 2
select min(raw), max(raw) from o where f <> 'NaN' or f is null
select count(raw), count(distinct raw) from o
select raw, count(*) from o group by raw order by raw
select distinct raw from o order by raw desc nulls last
select a.id, b.id from o a join o b on a.raw = b.raw where a.id < 6 and b.id < 9 order by 1, 2
select min(span), max(span) from o where f <> 'NaN' or f is null
select count(span), count(distinct span) from o
select span, count(*) from o group by span order by span
select distinct span from o order by span desc nulls last
select a.id, b.id from o a join o b on a.span = b.span where a.id < 6 and b.id < 9 order by 1, 2
select count(b), count(distinct b) from o
select b, count(*) from o group by b order by b
select distinct b from o order by b desc nulls last
select a.id, b.id from o a join o b on a.b = b.b where a.id < 6 and b.id < 9 order by 1, 2
select min(t), max(t) from o where f <> 'NaN' or f is null
select count(t), count(distinct t) from o
select t, count(*) from o group by t order by t
select distinct t from o order by t desc nulls last
select a.id, b.id from o a join o b on a.t = b.t where a.id < 6 and b.id < 9 order by 1, 2
select sum(id) from o where id < 100
select avg(id) from o where id < 100
select cid, sum(id), avg(id) from o where id < 100 group by cid order by cid
select sum(id) filter (where n > 4), count(*) filter (where n is null) from o where id < 100
select id, sum(id) over (partition by cid order by id) from o where id < 100 order by id
select sum(distinct id) from o where id < 100
select variance(id), stddev(id), var_pop(id), stddev_pop(id) from o where id < 100 and n in (1, 4)
select sum(cid) from o where id < 100
select avg(cid) from o where id < 100
select cid, sum(cid), avg(cid) from o where id < 100 group by cid order by cid
select sum(cid) filter (where n > 4), count(*) filter (where n is null) from o where id < 100
select id, sum(cid) over (partition by cid order by id) from o where id < 100 order by id
select sum(distinct cid) from o where id < 100
select variance(cid), stddev(cid), var_pop(cid), stddev_pop(cid) from o where id < 100 and n in (1, 4)
select sum(amount) from o where id < 100
select avg(amount) from o where id < 100
select cid, sum(amount), avg(amount) from o where id < 100 group by cid order by cid
select sum(amount) filter (where n > 4), count(*) filter (where n is null) from o where id < 100
select id, sum(amount) over (partition by cid order by id) from o where id < 100 order by id
select sum(distinct amount) from o where id < 100
select variance(amount), stddev(amount), var_pop(amount), stddev_pop(amount) from o where id < 100 and n in (1, 4)
select sum(n) from o where id < 100
select avg(n) from o where id < 100
select cid, sum(n), avg(n) from o where id < 100 group by cid order by cid
select sum(n) filter (where n > 4), count(*) filter (where n is null) from o where id < 100
select id, sum(n) over (partition by cid order by id) from o where id < 100 order by id
select sum(distinct n) from o where id < 100
select variance(n), stddev(n), var_pop(n), stddev_pop(n) from o where id < 100 and n in (1, 4)
select sum(s) from o where id < 100
select avg(s) from o where id < 100
select cid, sum(s), avg(s) from o where id < 100 group by cid order by cid
select sum(s) filter (where n > 4), count(*) filter (where n is null) from o where id < 100
select id, sum(s) over (partition by cid order by id) from o where id < 100 order by id
select sum(distinct s) from o where id < 100
select variance(s), stddev(s), var_pop(s), stddev_pop(s) from o where id < 100 and n in (1, 4)
select sum(f) from o where id < 100
select avg(f) from o where id < 100
select cid, sum(f), avg(f) from o where id < 100 group by cid order by cid
select sum(f) filter (where n > 4), count(*) filter (where n is null) from o where id < 100
select id, sum(f) over (partition by cid order by id) from o where id < 100 order by id
select sum(distinct f) from o where id < 100
select variance(f), stddev(f), var_pop(f), stddev_pop(f) from o where id < 100 and n in (1, 4)
select sum(g) from o where id < 100
select avg(g) from o where id < 100
select cid, sum(g), avg(g) from o where id < 100 group by cid order by cid
select sum(g) filter (where n > 4), count(*) filter (where n is null) from o where id < 100
select id, sum(g) over (partition by cid order by id) from o where id < 100 order by id
select sum(distinct g) from o where id < 100
select variance(g), stddev(g), var_pop(g), stddev_pop(g) from o where id < 100 and n in (1, 4)
select sum(raw) from o where id < 100
select avg(raw) from o where id < 100
select cid, sum(raw), avg(raw) from o where id < 100 group by cid order by cid
select sum(raw) filter (where n > 4), count(*) filter (where n is null) from o where id < 100
select id, sum(raw) over (partition by cid order by id) from o where id < 100 order by id
select variance(raw), stddev(raw), var_pop(raw), stddev_pop(raw) from o where id < 100 and n in (1, 4)
select count(*) from o
select count(*) from o where false
select sum(amount) from o where false
select count(*), count(cid), count(distinct cid) from o
select sum(raw) from o
select max(raw), min(raw) from o
select avg(raw), avg(f) from o
select sum(span), avg(span) from o
select city, count(*), sum(credit) from c group by city order by city
select city, count(*) from c group by city having count(*) > 1
select code, count(*) from c group by code order by code
select code || '|', length(code) from c order by id
select a.id, b.id from c a join c b on a.code = b.code order by 1, 2
select c.name, o.id from c join o on o.cid = c.id where o.n > 5 order by o.id
select c.name, o.id from c left join o on o.cid = c.id and o.n > 8 order by c.id, o.id
select c.name, o.id from o right join c on o.cid = c.id and o.n = 1 order by c.id, o.id
select c.name, o.id from c full join o on o.cid = c.id order by c.id nulls last, o.id
select c.id, k.b from c full join k on k.a = c.id order by 1, 2
select count(*) from c cross join k
select count(*) from c, k
select c.name, k.v from c natural join (select a as id, v from k) k order by 1, 2
select id, c.name, e.name from c join e using (id) order by id
select id, c.name, e.name from c full join e using (id) order by id
select * from c left join e using (id) order by id
select c.id from c left join o on o.cid = c.id where o.id is null order by 1
select c.id from c left join o on o.cid = c.id where o.cid = 1 order by o.id limit 2
select e.name, b.name from e left join e b on e.boss = b.id order by e.id
select name from c where id in (select cid from o where n > 7) order by 1
select name from c where id not in (select cid from o where cid is not null) order by 1
select name from c where id not in (select cid from o) order by 1
select name from c where exists (select 1 from o where o.cid = c.id and o.n = 9) order by 1
select name from c where not exists (select from o where o.cid = c.id) order by 1
select name, (select count(*) from o where o.cid = c.id) from c order by id
select name, (select max(o.raw) from o where o.cid = c.id and o.id < 100) from c order by id
select name, (select o.id from o where o.cid = c.id order by o.id desc limit 1) from c order by id
select (select id from c)
select (select id from c where id = 99)
select array(select id from c order by id desc)
select array(select id from c where false)
select name from c where id = any (select cid from o)
select name from c where id > all (select cid from o where cid < 4)
select name from c where credit > any (select amount from o where id < 4) order by 1
select id from e where pay >= all (select pay from e where pay is not null)
select * from (select cid, sum(n) as t from o group by cid) x where t > 10 order by cid
select x.cid, c.name from (select distinct cid from o) x join c on c.id = x.cid order by 1
select c.id, x.id from c, lateral (select o.id from o where o.cid = c.id order by o.id limit 2) x order by 1, 2
select c.id, x.id from c left join lateral (select o.id from o where o.cid = c.id order by o.id limit 1) x on true order by 1
select c.id, g from c, generate_series(1, c.id) g order by 1, 2
select c.id, g.i from c cross join lateral (select c.id * 2 as i) g order by 1
select * from big order by total desc, name
select b.name, c.city from big b join c on c.name = b.name order by 1
with x as (select cid, count(*) as n from o group by cid) select * from x order by cid
with x as (select id from c), y as (select id from x where id > 2) select * from y order by id
with x as (select id from c) select a.id, b.id from x a join x b on a.id = b.id + 1 order by 1
with x(a, b) as (values (1, 'x'), (2, 'y')) select * from x order by a
with recursive t(n) as (select 1 union all select n + 1 from t where n < 10) select sum(n), count(*) from t
with recursive t as (select id, boss, name, 1 as depth from e where boss is null union all select e.id, e.boss, e.name, t.depth + 1 from e join t on e.boss = t.id) select * from t order by id
with recursive t(n) as (select 1 union select n % 3 + 1 from t) select n from t order by n
with recursive f(a, b) as (select 0::numeric, 1::numeric union all select b, a + b from f where b < 1000) select a from f
with recursive t(p) as (select name from e where id = 1 union all select t.p || '/' || e.name from t join e on length(t.p) < 12) select count(*) from t
select 1 union select 2 union select 1 order by 1
select 1 union all select 2 union all select 1 order by 1
select id from c intersect select cid from o order by 1
select id from c except select cid from o order by 1
select id from c except all select cid from o order by 1
select cid from o intersect all select id from c order by 1
select n from o union select s from o order by 1
select 1 union select 2.5 order by 1
select 1 union all select 2.50 union all select null order by 1
select credit from c union select raw from o where id < 4 order by 1
select amount from o where id < 4 union all select raw from o where id < 4 order by 1
select 'a' union select name from c order by 1
select null union select 1 order by 1
(select id from c order by id desc limit 2) union all (select id from e order by id limit 2) order by 1
select id from c order by id limit 2 offset 1
select count(*) from (select id from o order by id limit 5) x
select distinct city, ok from c order by city, ok
select distinct on (cid) cid, id from o order by cid, id desc
select distinct on (city) city, name from c order by city, name
select distinct raw * 0 from o where id < 9
select distinct x from (values (1.0), (1.00), (2)) v(x) order by 1
select x, count(*) from (values (1.0), (1.00), (2.5), (2.50)) v(x) group by x order by x
values (1, 'a'), (2, 'b') order by 1 desc
select * from (values (1, null), (2, 2.5), (null, 3)) v(a, b) order by a
select sum(a), avg(b) from (values (1, 1.5), (2, 2.25), (3, null)) v(a, b)
select id, row_number() over (order by n desc nulls last, id) from o order by id
select id, rank() over (partition by cid order by n), dense_rank() over (partition by cid order by n) from o where id < 100 order by id
select id, percent_rank() over (order by n), cume_dist() over (order by n) from o where id < 12 order by id
select id, ntile(3) over (order by id) from o where id < 12 order by id
select id, lag(n) over (order by id), lead(n, 2, -1) over (order by id) from o where id < 12 order by id
select id, lag(amount, 1, 0) over (order by id) from o where id < 6 order by id
select id, first_value(n) over (partition by s order by id), last_value(n) over (partition by s order by id) from o where id < 12 order by id
select id, nth_value(id, 2) over (partition by s order by id) from o where id < 12 order by id
select id, count(*) over () from o where id < 5 order by id
select id, sum(n) over (partition by s) from o where id < 12 order by id
select id, avg(amount) over (order by id) from o where id < 9 order by id
select id, max(raw) over (partition by s order by id) from o where id < 12 order by id
select cid, sum(sum(n)) over (order by cid) from o where id < 100 group by cid order by cid
select cid, rank() over (order by count(*) desc, cid) from o group by cid order by cid
select id, sum(n) over (order by id rows between 1 preceding and 1 following) from o where id < 9 order by id
select id, sum(n) over (order by id rows 2 preceding) from o where id < 9 order by id
select id, sum(n) over (order by id rows between unbounded preceding and unbounded following) from o where id < 9 order by id
select id, count(*) over (order by n range between 1 preceding and current row) from o where id < 9 order by id
select id, count(*) over (order by n groups between 1 preceding and current row) from o where id < 9 order by id
select id, sum(n) over w, count(*) over w from o where id < 9 window w as (partition by s order by id) order by id
select id, sum(n) over (order by id rows between 1 following and 2 following) from o where id < 9 order by id
select id, sum(n) over (order by id rows between unbounded preceding and current row exclude current row) from o where id < 9 order by id
select cid, s, count(*) from o where id < 100 group by rollup (cid, s) order by cid nulls last, s nulls last, count(*)
select cid, s, count(*) from o where id < 100 group by cube (cid, s) order by cid nulls last, s nulls last, 3
select cid, s, sum(n), grouping(cid), grouping(cid, s) from o where id < 100 group by grouping sets ((cid), (s), ()) order by 4, 5, 1, 2
select city, count(*) from c group by grouping sets (city, ()) order by 1 nulls last, 2
select string_agg(name, ', ' order by name desc) from c
select string_agg(name, '') from c where false
select city, string_agg(name, '-' order by id) from c group by city order by city
select string_agg(distinct city, ',' order by city) from c
select array_agg(id order by id desc) from c
select array_agg(city order by id) from c
select array_agg(credit order by id) from c
select array_agg(distinct city order by city) from c
select bool_and(ok), bool_or(ok), every(ok) from c
select bit_and(n), bit_or(n), bit_xor(n) from o
select json_agg(id order by id) from c
select jsonb_agg(id order by id) from c
select jsonb_object_agg(name, id) from c where id < 3
select json_object_agg(name, id) from c where id = 1
select json_agg(name order by id), json_agg(credit order by id) from c
select percentile_cont(0.5) within group (order by n) from o
select percentile_cont(0.25) within group (order by f) from o where id < 100
select percentile_disc(0.5) within group (order by n) from o
select mode() within group (order by s) from o
select percentile_disc(0.75) within group (order by name) from c
select corr(n, f), covar_pop(n, f), covar_samp(n, f) from o where id < 10
select regr_slope(n, f), regr_intercept(n, f), regr_count(n, f) from o where id < 10
select cid, case when count(*) > 5 then 'many' else 'few' end from o group by cid order by cid
select c.name, c.city, count(*) from c join o on o.cid = c.id group by c.id order by c.id
select c.id, c.city || '!', count(*) from c join o on o.cid = c.id group by c.id order by c.id
select n % 3 as m, count(*) from o group by n % 3 order by m
select n % 3 as m, count(*) from o group by m order by m
select n / 2, n % 2, -n / 2, -n % 2 from o where n is not null order by id limit 5
select upper(city), count(*) from c group by upper(city) order by 1
select upper(city), count(*) from c group by 1 having upper(city) like 'B%'
select date_trunc('month', at), count(*) from o group by 1 order by 1
select extract(month from at), sum(n) from o group by 1 order by 1
select date_trunc('day', z), count(*) from o group by 1 order by 1
select to_char(at, 'YYYY-MM'), count(*) from o group by 1 order by 1
select at::date, count(*) from o group by 1 order by 1 limit 3
select max(at) - min(at), max(z) - min(z) from o
select c.id, o.at - c.since from c join o on o.cid = c.id where o.id < 6 order by o.id
select since - date '2020-01-01', count(*) from c group by 1 order by 1
select amount * n, amount + raw, amount - 1, amount / 3 from o where id < 5 order by 1
select sum(amount * n), sum(amount / 3), sum(n * 1.5) from o where id < 100
select sum(amount) / count(*), sum(n) / count(*), sum(n)::float8 / count(*) from o where id < 100
select round(avg(amount), 2), trunc(avg(n), 1), ceil(avg(f)), floor(avg(raw)) from o where id < 100
select round(avg(f)), round(avg(f)::numeric, 3) from o where id < 100
select sum(f) * 2, sum(g), sum(f) - sum(f) from o where id < 100
select coalesce(sum(n), 0), coalesce(sum(amount), 0), coalesce(max(name), '-') from o join c on false
select coalesce(c.credit, 0), greatest(c.credit, 1), least(c.credit, 0.5) from c join k on k.a = c.id order by c.id, k.b
select greatest(max(n), 3), least(min(n), 3), nullif(count(*), 27) from o
select nullif(a.city, b.city), a.id, b.id from c a, c b where a.id < 3 and b.id < 3 order by 2, 3
select a.id from c a join c b on a.city is not distinct from b.city and a.id <> b.id order by 1
select a.id, b.id from c a join c b on (a.city, a.ok) = (b.city, b.ok) and a.id < b.id
select a.id, b.id from c a join c b on (a.id, a.name) < (b.id, b.name) where a.id < 3 order by 1, 2
select count(*) from o a join o b on a.raw = b.amount
select count(*) from o a join o b on a.f < b.f
select count(*) from o a join o b on a.n = b.f
select count(*) from o a join o b on a.n = b.raw
select count(*) from o a join o b on a.tags = b.tags
select count(*) from c a, c b where a.name like b.name
select a.name from c a join c b on a.name ilike upper(b.name) order by 1
select a.name from c a join k on a.name like '%' || k.b || '%' order by 1
select name from c join k on k.a = c.id where name like 'a%' or name like '%\_%' order by 1
select a.name from c a join k on k.a = a.id where a.name ~ '^[ab]' order by 1
select count(*) from o join c on c.id = o.cid where o.tags @> array['a']
select unnest(tags), id from o where id < 6 order by 2, 1
select o.id, x from o, unnest(o.tags) x where id < 7 order by 1, 2
select o.id, x, i from o, unnest(o.tags) with ordinality u(x, i) where id < 7 order by 1, 3
select array_length(tags, 1), count(*) from o group by 1 order by 1
select tags, count(*) from o group by tags order by tags limit 3
select * from generate_series(1, 5) g
select * from generate_series(10, 1, -3) g
select * from generate_series(1, 0) g
select g from generate_series(1::int8, 3) g order by g desc
select g from generate_series(timestamp '2024-01-01', timestamp '2024-01-03', interval '12 hours') g
select g::date, count(o.id) from generate_series(timestamp '2024-01-01', timestamp '2024-01-06', interval '1 day') g left join o on o.at::date = g::date group by 1 order by 1
select generate_series(1, 3), 'x'
select generate_series(1, id) from c where id < 4 order by 1
select id, regexp_split_to_table(name, '') from c where id < 3 order by 1, 2
select * from string_to_table('a,b,c', ',') x
select * from unnest(array[1, 2, 3]) x order by x desc
select * from unnest(array[1, 2, 3], array['a', 'b']) u(x, y) order by x
select j->>'a', count(*) from o group by 1 order by 1
select sum((j->>'a')::int) from o where id < 100
select count(*) from o a join o b on a.j->>'a' = b.j->>'a' where a.id < 9 and b.id < 9
select count(distinct j) from o
select * from jsonb_array_elements('[1, 2, {"a": 3}]') x
select * from jsonb_each_text('{"a": 1, "b": "x"}') order by 1
select o.id, x from o, jsonb_array_elements(o.j) x where o.id = 102 order by 2
select id from o order by raw desc nulls last, id limit 3
select id from c order by credit nulls first, id
select id from c order by lower(name), id desc
select name from c order by name
select id from o order by span desc nulls last, id limit 3
select a.id from o a join c on c.id = a.cid order by a.f desc, a.id limit 4
select a.id, a.g from o a join c on c.id = a.cid order by a.g, a.id limit 4
select k.a, k.b, k.v from k join c on c.id = k.a where k.a = 1 and k.b > 'a' order by 1, 2
select * from k a join k b on a.a = b.a and a.b < b.b order by 1, 2, 5
select k.*, c.name from k left join c on c.id = k.a where k.a in (2, 3) order by 1, 2
select sum(v) from k where a = 1
select a, max(v), min(v) from k where a > 1 group by a order by a
select count(*) from o where cid = 2
select count(*) from o where id in (1, 2, 3, 777)
select count(*) from o where id between 5 and 8
select sum(n) from o where cid = any (array[1, 2])
select count(*) from o where cid is null
select count(*) filter (where ok), count(*) filter (where not ok), count(*) from c
select count(nullif(ok, false)) from c
select ok, count(*) from c group by ok order by ok
select not ok, ok is true, ok is not false, ok is unknown, count(*) from c group by ok order by ok
select current_date is not null, count(*) from c
select 1, count(*) from c group by 1
select c.name from c order by (select count(*) from o where o.cid = c.id) desc, c.id
select sum(x) from (select 1 as x union all select 2 union all select 3) y
select sum(x) from (select n from o where n > 3 order by id limit 4) y(x)
select (select sum(n) from o) - (select sum(s) from o)
select exists (select 1 from c where id = 3), exists (select 1 from c where id = 33)
select case when exists (select 1 from k where k.a = c.id) then 'y' else 'n' end from c order by id
select case c.city when 'Bern' then 1 when 'Rom' then 2 else 0 end, count(*) from c join k on true group by 1 order by 1
select c.id from c where c.credit = (select max(credit) from c)
select c.id from c where (c.city, c.ok) in (select city, ok from c where id = 1) order by 1
select c.id from c where (c.id, c.name) = (select id, name from c where id = 2)
select c.id from c where row(c.id, 1) in (select a, 1 from k) order by 1
select u, id from o where u = (select max(u) from o where id < 5)
select u, count(*) from o where id < 3 group by u order by u
select b, count(*) from o group by b order by b limit 3
select md5(string_agg(name, '' order by id)) from c
select length(string_agg(name, ',')) from c
select initcap(name), lpad(name, 5, '*'), substr(name, -1, 3), left(name, -1), count(*) from c join k on k.a = c.id group by c.name order by 1
select width_bucket(n, 0, 10, 5), count(*) from o group by 1 order by 1
select abs(min(credit)), sign(min(credit)), sqrt(max(credit)), power(max(credit), 2) from c
select max(n) / 0 from o
select sum(n) / sum(0) from o
select 1 / (count(*) - 27) from o
select sum(f) / 0 from o
select (sum(n) * 1000000000)::int4 from o
select (max(n) + 2147483647) from o
select max(id) * 9223372036854775807 from o
select sum(power(10, 300) * power(10, n)::float8) from o where id < 100
select sqrt(min(credit)) from c
select name::int from c join k on true
select (select k.a from k where k.a = c.id) from c
select fetch.id from c fetch order by id fetch first 2 rows with ties
select city from c order by city fetch first 1 rows with ties
select count(*) from c limit -1
select sum(name) from c
select pay, count(*) from e group by pay order by pay
select e.pay, count(*) from e join e b on e.pay = b.pay group by e.pay order by 1
select sum(pay), avg(pay), max(pay), min(pay) from e
select distinct pay from e order by pay
select boss, array_agg(name order by pay desc nulls last, id) from e group by boss order by boss
select t.total from (select sum(pay) total, boss from e group by boss) t where t.total > 60
select count(*) from e a join e b on a.pay > b.pay
select a.id, b.id, a.pay + b.pay from e a join e b on a.id < b.id where a.pay is not null order by 3 desc nulls last, 1, 2 limit 3
select 'x' || sum(pay) from e
select sum(pay)::int8, sum(pay)::text, sum(pay)::numeric(10,1) from e
select any_value from (select 1 as any_value) x
select row_number() over (), id from c order by id
select id, id::text || name from c join (select 1 as z) q on true order by 1
select count(*) from c where name = 'ann' and (select true)
select sum(case when n > 5 then amount else 0 end), sum(case when n > 5 then 1 else 0 end) from o where id < 100
select sum(case when n > 5 then raw end) from o where id < 100
select count(*) from (select 1 from o group by cid, s) x
select min(z) at time zone 'UTC', max(z)::date from o
select z::timestamp, count(*) from o where id < 4 group by 1 order by 1
select count(*) from o where z > timestamptz '2024-03-02 00:00:00+00'
select count(*) from o a join o b on a.z = b.z
select count(*) from o a join o b on a.at = b.z
select g, count(*) from o group by g order by g limit 4
select f, count(*) from o group by f order by f desc limit 2
select max(f), min(f) from o
select max(g), min(g), sum(g) from o where id < 100
select t, id from o where id > 22 order by t nulls first, id
select max(t) - min(t), avg(t - time '01:00') from o
select sum(span) from o where id < 3
select max(span), min(span) from o
select span, count(*) from o where id < 3 or id = 102 group by span order by span
select sum(x) over (order by id rows 1 preceding) from (select id, raw as x from o where id < 6) q order by 1
select c.name from c join o on o.cid = c.id group by c.name having max(o.raw) > 1.9 order by 1
select count(*) from o a full join o b on a.id = b.id + 20 where a.id is null
select a.id, b.id from c a left join c b on b.id = a.id + 1 and b.city = 'Rom' where a.id < 4 order by 1
select a.id from c a left join o b on b.cid = a.id where coalesce(b.n, -1) = -1 order by 1
select a.id from c a left join k b on b.a = a.id where b.a = 1 or b.a is null order by 1
select a.id, b.a from k b right join c a on b.a = a.id and b.a = 1 order by 1, 2
select a.id, b.a from k b right join c a on b.a = a.id where a.id = 4
select id, x from c left join (select a, count(*) as x from k group by a) q on q.a = c.id order by 1
select max(x) from (select case when id = 1 then 1 else 1.5 end as x from c) q
select case when id = 1 then 1 else 1.50 end from c join k on true group by c.id order by c.id
select coalesce(null, count(*)) from c
select sum(id) from c where id in (select 1 union select 2.0)
select count(*) from c where name between 'b' and 'd'
select count(*) from c a join c b on a.name < b.name collate "C"
select 'é' < 'z', count(*) from c
select max(name), min(name) from c
select upper(max(name)), lower(min(name)) from c
select count(*) from (select distinct at::time from o) q
select id % 2 = 0 as even, string_agg(id::text, ',' order by id) from c group by 1 order by 1
select string_agg(id::text, ', ' order by id desc) filter (where id > 2) from c
select string_agg(name, city) from c where city is not null and id = 1
select array_agg(distinct n order by n desc) from o
select array_agg(n) filter (where n > 8) from o
select sum(distinct raw) from o where id < 100
select max(distinct raw), count(distinct raw) from o
select avg(distinct n) from o
select count(distinct (cid, n)) from o
select count(distinct name || city) from c
select -sum(n), +sum(n), @ -5 from o
select sum(n) * 2.5, sum(n) / 7.0, sum(id) % 7 from o where id < 100
select sum(amount) % 7, sum(amount) ^ 2 from o where id < 100
select avg(amount) - avg(raw) from o where id < 100
select round(sum(amount) / nullif(sum(n), 0), 4) from o where id < 100
select (avg(n))::int, (avg(f))::int, sum(f)::numeric from o where id < 100
select 0.1 + 0.2, count(*) from c
select 0.1::float8 + 0.2::float8, count(*) from c
select sum(0.1::float8) from c
select 1e400 * count(*) from c
select 12345678901234567890123456789012345678.5 * count(*) from c
select 99999999999999999999999999999999999999 + count(*) from c
select sum(9223372036854775807) from c
select count(*) * 9223372036854775807 from c
select max(s) + 32767::int2 from o
select -32768::int2 - max(s) from o
select interval '1 day' * count(*) from c
select since + count(*)::int from c group by since order by 1
select since + interval '1 month', count(*) from c group by since order by 1
select age(max(at), min(at)) from o
select date_part('dow', at), count(*) from o group by 1 order by 1
select extract(epoch from max(z)) from o
select z at time zone 'Europe/Zurich', count(*) from o where id < 3 group by z order by 1
select to_char(sum(amount), '999,999.99') from o where id < 100
select c.id, o.id from c join o on o.at::date > c.since and o.id < 3 order by 1, 2
select length(max(code)), max(code) || '!' from c
select code = 'ab', count(*) from c group by 1 order by 1
select code::text = 'ab  ', count(*) from c group by 1 order by 1
select code like 'ab', count(*) from c group by 1 order by 1
select code like 'ab%', count(*) from c group by 1 order by 1
select count(*) from c a join k on a.code = k.b
select name || null, count(*) from c group by 1
select concat(name, null, 1), count(*) from c join k on true group by 1 order by 1
select name like null, count(*) from c group by 1
select null = null, count(*) from c
select count(*) from c where null
select 1 where (select count(*) from c) > 4
select (select 1 where false), count(*) from c
select case when false then 1 / 0 else count(*) end from c
select coalesce(count(*), 1 / 0) from c
select case count(*) when 5 then 'five' when 6 then 'six' end from c
select tags[1], count(*) from o group by 1 order by 1
select tags || array['z'], count(*) from o where id < 5 group by 1 order by 1
select array_agg(tags[1] order by id) from o where id < 5
select 'a' = any (tags), count(*) from o group by 1 order by 1
select id from o where 'b4' = any (tags) and cid in (select id from c)
select array[n, s]::int[], count(*) from o where id < 4 group by 1 order by 1
select x.a from (values (array[1, 2]), (array[1])) x(a) order by a
select x.a from (values (array[[1, 2], [3, 4]])) x(a) join c on c.id = 1
select array_agg(array[id]) from c
select id, (select array_agg(o.id order by o.id) from o where o.cid = c.id and o.id < 10) from c order by id
select jsonb_build_object('n', count(*)), json_build_array(sum(n)) from o
select j, count(*) from o where id < 4 group by j order by 2, 1
select j = '{"a": 1}', count(*) from o group by 1 order by 1
select j -> 'a', count(*) from o where id < 100 group by 1 order by 1
select md5(name), count(*) from c group by 1 order by 1
select u::text, count(*) from o where id < 3 group by 1 order by 1
select encode(b, 'hex'), count(*) from o where id < 4 group by b order by 1
select max(b) from o
select bool_and(n > 100), bool_or(n is null) from o
select every(ok is null) from c where false
select stddev(raw) from o
select stddev(n), variance(n) from o where id = 1
select stddev_pop(f) from o where id < 3
select corr(id, n) from o where id < 30
select percentile_cont(0.5) within group (order by amount desc) from o
select percentile_disc(array[0.25, 0.75]) within group (order by n) from o
select percentile_cont(1.5) within group (order by n) from o
select mode() within group (order by tags[1]) from o
select rank(3) within group (order by n) from o
select id, sum(f) over (order by id), avg(f) over (order by id rows 1 preceding) from o where id < 6 order by id
select id, max(name) over (order by id rows between 1 preceding and 1 following) from c order by id
select id, array_agg(name) over (order by id) from c order by id
select id, string_agg(name, ',') over (order by id) from c order by id
select id, count(distinct n) over () from o
select id, count(*) filter (where ok) over (order by id) from c order by id
select id, first_value(credit) over (order by credit) from c order by id
select id, lag(city, 2, 'none') over (order by id) from c order by id
select id, lag(credit) over (order by id) + 1 from c order by id
select id, rank() over (order by raw) from o where id < 5 order by id
select id, sum(n) over (order by at range between interval '2 days' preceding and current row) from o where id < 8 order by id
select id, sum(n) over (order by raw range between 0.1 preceding and current row) from o where id < 5 order by id
select id, row_number() over (partition by code order by id) from c order by id
select * from (select id, row_number() over (partition by cid order by n desc, id) as r from o) q where r = 1 order by id
select sum(r) from (select rank() over (order by n) as r from o) q
select cid, sum(n) * 100 / sum(sum(n)) over () from o where id < 100 group by cid order by cid
select distinct first_value(id) over (partition by cid order by id) from o order by 1
select distinct sum(n) over (partition by cid) from o where id < 100 order by 1
select count(*) over (), id from c order by id limit 2
with a as (select 1 as x), b as (select x + 1 as y from a) select * from a, b
with a as (select * from c) select count(*) from a where id in (with b as (select 2 as z) select z from b)
with recursive r(i, f) as (select 1, 1::numeric union all select i + 1, f * (i + 1) from r where i < 30) select i, f from r order by i desc limit 2
with recursive r as (select id, boss from e where id = 6 union select e.id, e.boss from e join r on r.boss = e.id) select id from r order by id
with recursive a(n) as (select 1 union all select n * 2 from a where n < 100), b(m) as (select max(n) from a) select * from b
with recursive t(n) as (select 1 union all select n + 1 from t) select n from t limit 3
select * from (values (1), (2.5), (null)) v(x) where x > 1
select x + 1 from (values (1), (2.5)) v(x) order by 1
select (values (1))
select id from c where id = (values (2))
select * from c where (select count(*) from o where o.cid = c.id) > 4 and city = 'Bern' order by id
select id from c where (select max(n) from o where o.cid = c.id and o.amount > (select avg(amount) from o x where x.cid = c.id)) > 5 order by 1
select id, (select count(*) from (select distinct n from o where o.cid = c.id) q) from c order by id
select id, (select string_agg(b, ',' order by b) from k where k.a = c.id) from c order by id
select id, exists (select 1 from o where o.cid = c.id and exists (select 1 from k where k.a = c.id and k.v > o.n)) from c order by id
select sum((select max(v) from k where k.a = c.id)) from c
select city, max((select count(*) from o where o.cid = c.id)) from c group by city order by city
select city, (select count(*) from k where k.b = min(c.name)) from c group by city order by city
select count(*) from o group by (select 1)
select c.city, (select count(*) from c d where d.city = c.city) from c group by c.city order by 1
select l.id, l.n from c, lateral (select o.id, o.n from o where o.cid = c.id and o.n > c.id order by o.n desc, o.id limit 1) l order by 1
select c.id, g.n from c left join lateral generate_series(c.id, 3) as g(n) on true order by 1, 2
select * from generate_series(1, 3) with ordinality as g(v, o) order by v desc
select g.v from generate_series(1.0, 2.0, 0.5) g(v)
select g from generate_series(current_date - 1, current_date, interval '1 day') g limit 0
select generate_series(1, 2), generate_series(1, 3)
select id, unnest(array[1, 2]) from c where id < 3 order by 1, 2
select count(*) from (select unnest(tags) from o) q
select sum(x) from unnest(array[1, 2, null]) x
select count(*) from generate_series(1, 100000) a where a % 7 = 0
select a, b from generate_series(1, 2) a, generate_series(1, 2) b order by 1 desc, 2
select 5 union all select null union all (select id from c order by id desc limit 1)
select id, name from c union select id, name from e order by 1, 2
select id from c union all select id from e except select 2 order by 1
(select 1 union select 2) intersect select 2
select 1 as a union select 2 order by a desc limit 1
select credit from c except select null
select null::int intersect select null
select raw from o intersect select amount from o
select raw from o where id < 4 except all select 0.1
select tags from o where id < 5 union select array['q'] order by 1
select distinct tags from o order by tags nulls first limit 2
select distinct j from o order by j limit 2
select distinct on (raw) raw, id from o order by raw, id limit 3
select distinct n, s from o where id < 6 order by s desc, n
select name from c order by 1 desc offset 3
select name from c join k on k.a = c.id order by c.id, k.b desc limit all
select id from c order by id limit null offset null
select id from c order by credit desc, id fetch next 2 rows only
select ctid from c join k on true
select c from c join k on true
select count(c) from c
select count(*), count(c.*) from c
select random() < 2, count(*) from c
select count(distinct random()) > 1 from o
select sum(pg_typeof(sum)::text = 'numeric'::text) from (select sum(id) from c) q
select pg_typeof(sum(id)), pg_typeof(avg(n)), pg_typeof(max(at)), pg_typeof(sum(n)) from o
select greatest(1, 2.5, max(n)), least('b', min(name)) from o, c
select max(n) between 1 and 10, max(n) in (8, 9), max(n) not in (1, null) from o
select sum(n) is null, sum(n) is not distinct from 0 from o where false
select 7 / 2, -7 / 2, 7 % -2, -7 % 2, count(*) from c
select mod(sum(n), 4), div(sum(n), 4), gcd(max(n), 6) from o
select round(2.5), round(-2.5), round(2.5::float8), round(3.5::float8), count(*) from c
select trunc(-2.7), ceil(-2.2), floor(-2.2), sign(-2), count(*) from c
select 2 ^ 10, |/ 16.0, 5 & 3, 5 | 3, 5 # 3, 1 << 4, ~5, count(*) from c
select position('n' in name), strpos(name, 'n'), count(*) from c group by 1, 2 order by 1
select substr(name, 0, 2), substring(name from 2 for 1), right(name, 1), count(*) from c group by name order by name
select name ~ 'a.n', name similar to '(ann|bob)', regexp_replace(name, '[aeiou]', '*', 'g'), count(*) from c group by name order by name
select split_part(name, 'n', 1), reverse(name), repeat(name, 2), count(*) from c group by name order by name
select trim(both 'a' from name), ltrim(name, 'a'), btrim(name), count(*) from c group by name order by name
select format('%s-%s', name, count(*)) from c group by name order by 1
select translate(name, 'an', 'xy'), ascii(name), chr(65 + count(*)::int) from c group by name order by name
select current_user = session_user, count(*) from c
select now() = current_timestamp, count(*) from c
select a.f, b.f from o a join o b on a.f = b.f where a.f = 'NaN'
select f = 'NaN', count(*) from o group by 1 order by 1
select f, rank() over (order by f desc) from o where f > 5 or f = 'NaN' order by 2, 1
select sum(f) from o
select max(raw) = 'NaN' from o
select sum(g) from o
select avg(g), min(g) from o
