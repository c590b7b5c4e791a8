-- json and jsonb
select '{"a": 1, "b": [1, 2, {"c": null}]}'::jsonb, '{"a":1,  "a":2}'::jsonb, '{"a":1,  "a":2}'::json
select '{"bb": 1, "a": 2, "c": 3}'::jsonb, '[1.0, 1.10, 1e3, -0]'::jsonb, '"\u00e9\n"'::jsonb
select '{a}'::jsonb
select '{"a": }'::json
select '[1, 2'::jsonb
select ''::json
select 'nul'::jsonb
select '{"a": {"b": [10, 20]}}'::jsonb -> 'a' -> 'b' -> 1, '{"a": 1}'::json -> 'x', '[1, 2]'::jsonb -> -1
select '{"a": {"b": [10, 20]}}'::jsonb -> 'a' ->> 'b', '{"a": null}'::jsonb ->> 'a', '{"a": "x"}'::json ->> 'a'
select '{"a": {"b": [10, 20]}}'::jsonb #> '{a,b,0}', '{"a": {"b": "q"}}'::jsonb #>> '{a,b}', '{"a": 1}'::jsonb #> '{}'
select '{"a": 1, "b": 2}'::jsonb @> '{"a": 1}', '[1, 2, 3]'::jsonb @> '[3, 1]', '[1, 2]'::jsonb @> '1', '{"a": [1, 2]}'::jsonb @> '{"a": [2]}'
select '{"a": 1}'::jsonb <@ '{"a": 1, "b": 2}', '{}'::jsonb <@ '[]'
select '{"a": 1}'::jsonb ? 'a', '["a", "b"]'::jsonb ? 'b', '"a"'::jsonb ? 'a'
select '{"a": 1, "b": 2}'::jsonb ?| array['x', 'b'], '{"a": 1, "b": 2}'::jsonb ?& array['a', 'b']
select '{"a": 1}'::jsonb || '{"b": 2, "a": 3}', '[1]'::jsonb || '[2]', '[1]'::jsonb || '{"a": 1}', '1'::jsonb || '2'
select '{"a": 1, "b": 2}'::jsonb - 'a', '["a", "b", "a"]'::jsonb - 'a', '[1, 2, 3]'::jsonb - 1, '{"a": 1, "b": 2}'::jsonb - array['a', 'b']
select '{"a": {"b": 1, "c": 2}}'::jsonb #- '{a,b}', '[1, [2, 3]]'::jsonb #- '{1,0}'
select '1'::jsonb - 'a'
select '{"a": 1}'::jsonb - 1
select '{"a": 1}'::jsonb = '{"a": 1.0}', '[1, 2]'::jsonb < '[1, 3]', '{"a": 1}'::jsonb > '[1]', 'null'::jsonb < '1'
select '{"a": 1}'::json = '{"a": 1}'::json
select ('{"a": 1.50}'::jsonb -> 'a')::numeric, ('{"a": 7}'::jsonb -> 'a')::int, ('true'::jsonb)::bool
select ('"x"'::jsonb)::int
select ('{"a": "7"}'::jsonb ->> 'a')::int
select jsonb_typeof('1'), jsonb_typeof('"a"'), jsonb_typeof('null'), jsonb_typeof('[]'), jsonb_typeof('{}'), json_typeof('true')
select jsonb_array_length('[1, 2, 3]'), json_array_length('[]')
select jsonb_array_length('{"a": 1}')
select jsonb_array_length('1')
select * from jsonb_each('{"a": 1, "b": {"c": 2}}')
select * from jsonb_each_text('{"a": 1, "b": null, "c": "x"}')
select * from json_each('{"a": 1, "a": "b"}')
select key, value from json_each_text('{"a": [1, 2], "b": "x"}')
select * from jsonb_object_keys('{"b": 1, "a": 2}') k
select * from json_object_keys('{"b": 1, "a": 2}') k
select * from jsonb_array_elements('[1, "a", null, {"b": 2}]') e
select * from jsonb_array_elements_text('[1, "a", null, {"b": 2}]') e
select * from json_array_elements('[1, [2]]') with ordinality e(v, n)
select jsonb_array_elements('[3, 4]'), jsonb_object_keys('{"x": 1, "y": 2}')
select * from jsonb_array_elements('{"a": 1}') e
select * from jsonb_each('[1]') e
select jsonb_build_object('a', 1, 'b', array[1, 2], 'c', null, 'd', 'x'), json_build_object('t', true, 'n', 1.50)
select jsonb_build_object('a')
select jsonb_build_object(null, 1)
select jsonb_build_array(1, 'a', null, 2.5, true, date '2024-01-01'), json_build_array()
select jsonb_object('{a,1,b,2}'), jsonb_object('{a,b}', '{1,2}'), json_object('{{a,1},{b,2}}')
select jsonb_object('{a,1,b}')
select to_jsonb(1), to_jsonb('x'::text), to_jsonb(1.50), to_jsonb(null::int), to_jsonb(timestamp '2024-01-02 03:04:05.6')
select to_json(date '2024-01-02'), to_json(timestamptz '2024-01-02 03:04+00'), to_json(interval '1 day'), to_json(0.1::float8)
select row_to_json(e) from (select id, name from emp where id < 3 order by id) e
select to_jsonb(e) from (select id, tags from emp where id < 3 order by id) e
select jsonb_agg(e order by id) from (select id, pay from emp where id < 3) e
select jsonb_set('{"a": {"b": 1}}', '{a,b}', '2'), jsonb_set('{"a": 1}', '{b}', '2'), jsonb_set('{"a": 1}', '{b}', '2', false), jsonb_set('[1, 2]', '{-1}', '9')
select jsonb_set('{"a": 1}', '{a}', null), jsonb_set_lax('{"a": 1}', '{a}', null)
select jsonb_set('[1]', '{x}', '2')
select jsonb_insert('[1, 2]', '{1}', '9'), jsonb_insert('[1, 2]', '{1}', '9', true), jsonb_insert('{"a": 1}', '{b}', '2')
select jsonb_insert('{"a": 1}', '{a}', '2')
select jsonb_strip_nulls('{"a": null, "b": [null, {"c": null}]}'), json_strip_nulls('{"a": null, "b": 1}')
select jsonb_pretty('{"a": [1, {"b": 2}], "c": {}}')
select jsonb_extract_path('{"a": {"b": 1}}', 'a', 'b'), jsonb_extract_path_text('{"a": [1, "x"]}', 'a', '1')
select jsonb_path_query('{"a": [1, 2, 3]}', '$.a[*] ? (@ > 1)')
select jsonb_path_exists('{"a": 1}', '$.a'), '{"a": 2}'::jsonb @? '$.a ? (@ > 1)', '{"a": 2}'::jsonb @@ '$.a > 1'
select * from jsonb_to_record('{"a": 1, "b": "x"}') as r(a int, b text)
select * from jsonb_to_recordset('[{"a": 1}, {"a": 2, "b": "y"}]') as r(a int, b text)
select * from json_to_recordset('[{"a": 1, "c": [1, 2]}]') as r(a int, c jsonb)
select * from jsonb_populate_record(null::emp, '{"id": 5, "name": "Z"}')
select id, info -> 'lang' ->> 0, info #>> '{home,zip}' from emp order by id
select id, info['age'], info['lang'][0] from emp where id < 4 order by id
select id from emp where info -> 'lang' ? 'py'
select id from emp where info @> '{"lang": ["c"]}'
select id, jsonb_typeof(info) from emp order by id
select jsonb_typeof(info), count(*) from emp group by 1 order by 1
select info from emp where info is not null order by info
select distinct info -> 'age' from emp order by 1
select info::text, length(info::text) from emp where id in (2, 6)
select attrs || '{"n": 1}' from item where attrs is not null order by sku
select sku, (attrs ->> 'w')::float8 * 2 from item order by sku
select sku, jsonb_array_elements_text(attrs -> 'tags') from item where attrs ? 'tags'
select sum((attrs ->> 'w')::numeric) from item
select '{"a": 1}'::jsonb::text, '{"a":  1}'::json::text, '{"b":1,"a":2}'::json::jsonb
select pg_typeof('{}'::jsonb -> 'a'), pg_typeof('{}'::json ->> 'a'), pg_typeof(to_json(1))
select '{"a": "x\"y"}'::jsonb ->> 'a', '"\ud83d\ude00"'::jsonb ->> 0, '"a\u0000b"'::json
select '"a\u0000b"'::jsonb
select '{"k": 12345678901234567890.123}'::jsonb, '1e-5'::jsonb, '1E400'::jsonb
select '{"a": 1}'::jsonb -> null, null::jsonb ->> 'a', '[1]'::jsonb -> 5
select '{"a": 1}'::text::jsonb, 'x'::jsonb
select json_agg(x) from (values (1), (null)) v(x)
select jsonb_object_agg(k, v) from (values ('b', 1), ('a', 2), ('b', 3)) t(k, v)
select json_object_agg(k, v) from (values ('b', 1), ('a', null)) t(k, v)
select jsonb_object_agg(k, v) from (values (null, 1)) t(k, v)
select jsonb_agg(x order by x desc) filter (where x > 1) from (values (1), (2), (3)) v(x)
select (info -> 'age')::int from emp where id = 1
select (info -> 'age')::int from emp where id = 4
select jsonb '{"a": [1, 2]}' -> 'a' @> '2', jsonb '[{"a": 1}, {"a": 2}]' @> '[{"a": 2}]'
select json_agg(d order by d.id) from dept d
select d.name, json_agg(e order by e.id) from dept d left join (select id, dept, name, hired from emp) e on e.dept = d.id group by d.name order by d.name
select to_json(d), row_to_json(d) -> 'name' from dept d where d.id = 1
select e.id, (select row_to_json(d) from dept d where d.id = e.dept) from emp e order by e.id
select row_to_json(q) from (select d.name, (select jsonb_agg(x order by x.id) from (select id, tags from emp where dept = d.id) x) as people from dept d where d.id < 3 order by d.id) q order by q.name
select json_agg(row_to_json(p)) from (select a, b from pair where a = 1 order by b) p
