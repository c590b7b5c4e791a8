-- Functions that return sets, arrays of arrays, aggregates whose order shows, frames by RANGE, recursion.
select * from unnest(array[1,2], array['a','b','c']) with ordinality
select * from unnest(array[1,2], array['a','b','c']) with ordinality as u(a, b, n) where n > 1
select * from rows from (unnest(array[1,2]), generate_series(5,7)) with ordinality
select * from rows from (unnest(array[1,2]), upper('x')) with ordinality
select i.sku, u.* from item i cross join lateral unnest(i.dims, array['p','q']) with ordinality u(x, y, n) order by i.sku, n
select generate_series(1, generate_series(1, 3))
select generate_series(1, generate_series(1, generate_series(1, 2)))
select generate_series(1, generate_series(1, 3)), generate_series(1, 2)
select id, generate_series(1, generate_series(1, id)) from dept where id < 4 order by 1, 2
select unnest(array[1,2]), generate_series(1,3) from dept where id = 1
select (jsonb_each('{"a":1,"b":2}')).*
select (jsonb_each('{"a":1,"b":2}')).key
select (jsonb_each('{"a":1,"b":2}')).nope
select id, (jsonb_each(info)).* from emp where jsonb_typeof(info) = 'object' order by id, key
select id, (jsonb_each_text(info)).value, generate_series(1, 2) from emp where id = 1
select array(select array[id, id + 1] from dept order by id)
select array(select array[id::numeric, 1.50] from dept order by id), array(select array[name] from dept where id > 9)
select array(select dims from item where dims is not null order by sku)
select array_agg(array[id, 1] order by id desc), array_agg(array[name]) filter (where id > 9) from dept
select array_agg(dims) from item where dims is null
select array_agg(dims order by sku) from item
select array_length(array(select array[id] from dept), 1), (array(select array[id, 7] from dept order by id))[2][1] from dept where id = 1
select array_agg(distinct kind), string_agg(distinct note, ','), json_agg(distinct qty), jsonb_agg(distinct kind) from sale
select array_agg(distinct qty), array_agg(distinct qty order by qty desc), string_agg(distinct note, '-' order by note desc) from sale
select array_agg(distinct n), array_agg(distinct f8), array_agg(distinct i2) from num
select array_agg(distinct attrs), json_agg(distinct attrs), count(distinct attrs) from item
select json_agg(distinct dims), jsonb_agg(dims order by sku), json_agg(dims order by sku) from item
select json_object_agg(distinct note, qty) from sale where note is not null and id < 20
select json_object_agg(distinct qty, kind), jsonb_object_agg(distinct qty, id) from sale where id < 9
select json_object_agg(distinct n, id) from num where id <> 5
select sum(distinct n2), avg(distinct qty), sum(distinct f8), count(distinct n2), sum(distinct n) from num n join sale s on s.id = n.id
select emp, array_agg(distinct qty) from sale group by emp order by emp
select id, sum(id) over (order by f8 range between 0.5 preceding and current row) from num order by id
select id, sum(id) over (order by f8 desc range between 7 preceding and 1 following) from num order by id
select id, sum(id) over (order by f4 range between 0.5 preceding and 0.5 following) from num order by id
select id, sum(id) over (order by n2 range between 0.1 preceding and 2.0 following) from num order by id
select id, sum(id) over (order by n range between 2.50 preceding and 0.1 following) from num where id in (1, 4, 5, 6, 7) order by id
select id, count(*) over (order by pay range between 2000 preceding and current row) from emp order by id
select id, count(*) over (order by i4::int8 range between 5::int2 preceding and 5 following) from num order by id
select id, count(*) over (order by t range between '1 hour' preceding and '30 minutes' following) from moments order by id
select id, count(*) over (order by i range between '1 mon' preceding and current row) from moments order by id
select id, count(*) over (order by hired range between '1 year' preceding and current row) from emp order by id
select id, count(*) over (order by at range between '2 hours' preceding and current row) from sale order by id
select id, sum(id) over (order by i4 range between '1 day' preceding and current row) from num
select id, sum(id) over (order by i4 range between '1 day'::interval preceding and current row) from num
select id, sum(id) over (order by i4 range between 1.5 preceding and current row) from num
select id, sum(id) over (order by i4 range between -1 preceding and current row) from num
select id, sum(id) over (order by f8 range between 'NaN' preceding and current row) from num
select id, sum(id) over (order by i4 range between null preceding and current row) from num
select id, sum(id) over (order by i4 rows between current row and -1 following) from num
select id, sum(id) over (order by name range between '1' preceding and current row) from emp
select '1'::jsonb || '{"q":1}', '{"a":1}'::jsonb || '1', 'null'::jsonb || '{}', '[1]'::jsonb || '{"q":1}'
select info || '{"q":1}' from emp order by id
select normalize(name), normalize(name, NFD) = name, name is normalized from emp order by id
select id, 'dept'::regclass::oid > 0, 'dept'::regclass::text, pg_typeof(name)::oid, pg_typeof(budget)::text from dept order by id
select pg_typeof(1::int2)::oid, pg_typeof('x'::text)::oid::int
select id, 'nothing_like_it'::regclass::oid from dept
select count(*) from item a join item b on a.dims between b.dims and b.dims
select a.sku, b.sku from item a join item b on a.dims >= b.dims and a.dims < array[9, 9] order by 1, 2
select make_interval(), make_interval(1, 2), make_interval(days => 3)
select width_bucket(1.7e308::float8, 0, 'inf', 5)
select width_bucket(0, array[1, null])
select array_fill(0, array[[1, 2], [3, 4]])
with recursive r as (select 1 as n union all select max(n) + 1 from r) select * from r limit 5
with recursive r as (select 1 as n union all select count(*)::int from r where n < 3) select * from r limit 5
with recursive r as (select 1 as n union all select n + 1 from (select sum(n)::int as n from r) x where n < 3) select * from r
with recursive r as (select 1 as n union all select n + 1 from r group by n having n < 3) select * from r
with recursive r as (select 1 as n union all select (sum(n) over ())::int + 1 from r where n < 3) select * from r
with recursive r as (select 1 as n union all select n + 1 from r where n < 3 order by 1) select * from r
with recursive r as (select 1 as n union all select n + 1 from r where n < 3 limit 1) select * from r
with recursive r as (select 1 as n union all select a.n + 1 from r a, r b where a.n < 3) select * from r
with recursive r as (select 1 as n union all select x.id from dept x left join r on r.n = x.id where false) select * from r
with recursive r as (select 1 as n union all select id from dept where id in (select n from r)) select * from r limit 3
with recursive r as (select 1 as n except select n + 1 from r) select * from r
with recursive r as (select n from r) select * from r
with recursive r as (select n from r union all select 1) select * from r
with recursive r as (select 1 as n union all (select 5 except select n + 1 from r where n < 3)) select * from r
with recursive r as (select 1 as n union all (select n + 1 from r where n < 3 intersect select 2)) select * from r
with recursive r as (select 1 as n union all select n + 1 from r where n < (select count(*) from dept)) select * from r
with recursive r as (select id, boss, 1 as depth from emp where boss is null union all select e.id, e.boss, r.depth + 1 from emp e join r on r.id = e.boss) select * from r order by id
