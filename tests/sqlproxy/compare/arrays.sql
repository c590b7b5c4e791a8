-- arrays
select array[1, 2, 3], array['a', null], array[]::int[]
select array[1, 2.5, null]
select array[1, 'x']
select array[[1, 2], [3, 4]], array[[1, 2], [3]]
select '{1,2,3}'::int[], '{"a b",NULL,"null",""}'::text[]
select '{1,2'::int[]
select '{{1,2},{3,4}}'::int[], '{}'::int[]
select '{1,x}'::int[]
select '[2:4]={1,2,3}'::int[]
select (array[10, 20, 30])[2], (array[10, 20, 30])[4], (array[1])[0]
select (array[10, 20, 30])[2:], (array[10, 20, 30])[:2], (array[10, 20, 30])[2:3]
select (array[[1, 2], [3, 4]])[2][1], (array[[1, 2], [3, 4]])[1:2][2:2]
select (array[1, 2])[null], (array[1, 2])['1']
select (array[1, 2])['x']
select array[1, 2] || array[3], array[1, 2] || 3, 0 || array[1, 2]
select array[1, 2] || null, null || array[1, 2], array[1] || '{2,3}'
select array[[1, 2]] || array[3, 4]
select array[1, 2] || 'x'
select array_append(array[1, 2], 3), array_prepend(0, array[1, 2]), array_cat(array[1], array[2])
select array_append(null, 3), array_append(array['a'], 'b')
select array_remove(array[1, 2, 1, null], 1), array_replace(array[1, 2, 1], 1, 9)
select array_position(array['a', 'b', 'a'], 'a'), array_position(array['a', 'b', 'a'], 'a', 2), array_positions(array[1, 2, 1], 1)
select array_length(array[1, 2], 1), array_length(array[1, 2], 2), array_length('{}'::int[], 1), cardinality(array[[1, 2], [3, 4]])
select array_ndims(array[[1], [2]]), array_dims(array[[1], [2]]), array_lower(array[1], 1), array_upper(array[1, 2], 1)
select array_to_string(array[1, null, 3], ','), array_to_string(array[1, null, 3], ',', '*'), array_to_string(array[['a', 'b'], ['c', 'd']], '-')
select string_to_array('a,b,,c', ','), string_to_array('a,b,,c', ',', ''), string_to_array('abc', null), string_to_array('', ',')
select array_fill(7, array[2]), array_fill('x'::text, array[2, 2])
select trim_array(array[1, 2, 3], 2), trim_array(array[1], 3)
select array[1, 2] = array[1, 2], array[1, 2] < array[1, 3], array[1, 2] < array[1], array[2] > array[1, 5]
select array[1, null] = array[1, null], array[null] = array[null]
select array[1, 2, 3] @> array[2], array[2] <@ array[1, 2], array[1, 2] && array[3], '{}'::int[] <@ array[1]
select 2 = any (array[1, 2]), 2 <> all (array[1, 2]), 3 > any (array[null, 5]), 3 = all ('{}'::int[])
select 1 = any (null::int[]), null = any (array[1]), 1 = any ('{1,2}')
select 1 = any (1)
select 'b' like any (array['a%', 'b%'])
select array_agg(x) from (values (1), (null), (3)) v(x)
select array_agg(array[x, x * 2]) from (values (1), (2)) v(x)
select array_agg(x order by x desc nulls last) from (values (1), (null), (3)) v(x)
select array(select x from (values (3), (1), (2)) v(x) order by x)
select array(select array[x, x] from (values (1), (2)) v(x) order by x)
select unnest(array[3, 1, 2]) as x order by x
select x, count(*) from unnest(array[1, 2, 1]) x group by x order by x
select dims, dims[2], dims[1:2], array_length(dims, 1) from item order by sku
select sku, (select sum(d) from unnest(dims) d) from item order by sku
select sku from item where dims @> array[7, 6] order by sku
select sku, dims || 5 from item where sku like 'a%' order by sku
select array['x'::varchar(3), 'yy'], pg_typeof(array['x'::varchar(3)])
select pg_typeof(array[1]), pg_typeof(array[1::int8, 2]), pg_typeof('{1}'::numeric(5,2)[]), pg_typeof(array[array[true]])
select '{1.456,2}'::numeric(5,2)[], array[1.456]::int[], array['1', '2']::int[]
select array[1, 2]::text[], array[1, 2]::text, '{t,f}'::bool[]::text[]
select array[date '2024-01-01', null], array[timestamptz '2024-01-01 00:00+00'], array[interval '1 day']
select array['\x01'::bytea], array['{"a": 1}'::jsonb], array[0.1::float8, 'NaN']
select array['a"b', 'c\d', 'e,f', ' g', 'NULL', '{}']
select array[1, 2] is null, array[null] is null, array[1] is distinct from null
select coalesce(null::int[], array[9]), nullif(array[1], array[1]), greatest(array[1, 2], array[1, 3])
select case when true then array[1] else array[2.5] end
select array_upper(tags, 1), tags[2], tags[array_upper(tags, 1)] from emp order by id
select array_to_json(array[1, 2]), array_to_json(array[[1], [2]]), to_jsonb(array['a', null])
select width_bucket(5, array[1, 3, 8])
select array_sort(array[2, 1])
select array[1, 2][1]
select (array[1, 2, 3])[1:null]
select array_length(1, 1)
select array_append(array[1], 'x')
select array[1] @> array['a']
select array_cat(array[1], array['a'])
select ('{a,b}'::text[])[1] || 'z', (string_to_array('a b', ' '))[2]
select array[]
select cardinality(null::int[]), array_ndims('{}'::int[]), array_dims('{}'::int[])
select array_remove(tags, 'a') from emp where tags is not null order by id
select * from unnest(null::int[]) x
select array[1,2,3] || array[]::int[]
select (select array_agg(e.id order by e.id) from emp e where e.dept = d.id)[1] from dept d order by id
select max(tags) from emp
select array_agg(distinct t order by t) from emp, unnest(tags) t
select unnest(tags) as tag, count(*), min(name) from emp group by 1 order by 1
select unnest(tags) as tag, count(*) from emp group by tag having count(*) > 1 order by tag
select unnest(tags) || '!' as x, sum(pay) from emp group by x order by x
select dept, unnest(tags), count(*) from emp group by 1, 2 order by 1, 2
select dept, unnest(array_agg(id order by id)) from emp group by dept order by 1, 2
select unnest(tags) x, sum(count(*)) over () from emp group by 1 order by 1
select unnest(tags), generate_series(1, 2), count(*) from emp group by 1, 2 order by 1, 2
select d.name, unnest(e.tags), count(*) from dept d left join emp e on e.dept = d.id group by 1, 2 order by 1, 2
select unnest(tags) x, count(*) from emp group by rollup(1) order by 1, 2
select upper(unnest(tags)), id from emp order by id, 1
select unnest(tags) || unnest(array['1', '2', '3']) from emp where id = 1
select generate_series(1, 4) / 2 as half, count(*) from emp where id < 3 group by 1 order by 1
select generate_series(1, 3) / generate_series(0, 2)
select jsonb_object_keys('{"a": 1, "b": 2}'::jsonb) as key, count(*) from dept group by 1 order by 1
select case when id > 1 then unnest(tags) end from emp
select coalesce(unnest(tags), 'x') from emp
select sum(generate_series(1, 3))
select lag(unnest(tags)) over () from emp
select count(*) filter (where unnest(tags) = 'a') from emp
select id from dept d where array[d.id] <@ (select array_agg(dept) from emp) order by 1
select id, array[d.id, null] <@ (select array_agg(dept) from emp) a, array[d.id, 1] <@ (select array_agg(dept) from emp) b, array[d.id, 9] && (select array_agg(dept) from emp) c, (select array_agg(dept) from emp where id > 99) @> array[d.id] n from dept d order by 1
select id from emp where (select array_agg(name) from emp where pay > 100) @> array[name] order by 1
select id from emp where (select array_agg(pay) from emp where pay > 100) && array[pay, 0.0] order by 1
select id from emp e where array[id] <@ array(select emp from sale where emp = e.id) order by 1
select id from emp where array[rate] <@ (select array_agg(rate) from emp) order by 1
select id, array[boss] && array(select boss from emp) from emp order by 1
select sku from item where dims @> array[2] and array[stock] <@ array(select id from dept) order by 1
