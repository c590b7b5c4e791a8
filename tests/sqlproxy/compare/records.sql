-- rows as values, and jsonpath
select count(distinct (a, n)), count(distinct (a, b)), count((a, b)), count(distinct row(b)) from (values (1, 'x', 1.0), (1, 'x', 1.00), (null, 'y', null), (null, 'y', null), (2, null, 3)) r(a, b, n)
select b, count(distinct (a, n)) filter (where a > 0) from (values (1, 'x', 1.0), (1, 'x', 1.00), (2, 'x', 2), (null, 'y', null)) r(a, b, n) group by b order by b
select distinct (n, b) is null, (b, 'q'::text) from (values (1, 'x', 1.0), (1, 'x', 1.00), (null, 'y', null)) r(a, b, n) order by 2
select distinct (a, b) from pair where a < 3
select distinct (a, b) from pair where a < 3 order by (a, b) desc
select (a, b), count(*) from pair where a < 3 group by (a, b) order by 1
select row(a, b) as k, count(*) from pair where a < 3 group by k order by k desc
select distinct on ((a, b)) a, b, v from pair order by (a, b), v
select a, b, row_number() over (order by (b, a)), row_number() over (partition by (b) order by (a, b) desc) from pair where a < 3 order by a, b
select (a, b), row(v) from pair where a = 1 order by b
select row(1, 2.50, 'a b', null, true, '{"a": 1}'::jsonb, array[1, 2], 'q"\,()'), row(), row(null), row(''), row(1, row(2, 'x y'))
select row('2020-01-02'::date, '2020-01-02 03:04:05+00'::timestamptz, interval '1 day 2 hours', '\x00ff'::bytea, 1.5::float8)
select (1, 2)::text, length(row('a', null)::text), coalesce((1, 2), (3, 4)), case when true then row(1) else row(2) end
select ((1, 2), 3) = ((1, 2), 3), ((1, null::int), 3) = ((1, 2), 3), ((1, 2), 3) <> ((1, 3), 3), row(row(1)) = row(row(2))
select (1, 2) between (1, 1) and (1, 3), (2, 0) not between (1, 1) and (1, 3)
select pg_typeof((1, 2)), to_json((1, 'a')), row_to_json(row(1, 'a', null)), to_jsonb(row(1, 2, row(3))), json_build_object('a', (1, 2)), jsonb_build_array((1, 'b'))
select json_agg((a, b) order by b) from pair where a = 1
select row(p.*), row(p.*, 1) from pair p where a = 1 and b = 2
select (p).v, count(distinct p) from pair p where a = 1 group by (p).v order by 1
select string_agg((a, b)::text, ';' order by a, b) from pair where a < 3
select (1, 2) || 'x', concat((1, 2), 'a'), format('%s', (1, 2))
select (1, 2) = 1
select max((1, 2))
select '$.a[*] ? (@.b > 1 && @ starts with "x").size()'::jsonpath, 'strict $ . "a"[0 to last]'::jsonpath, 'lax -$.a.**{1 to last} + 1.50'::jsonpath
select jsonb_path_query('{"a": [1, 2, 3]}', '$.a[*] ? (@ >= $x)', '{"x": 2}') as v order by v desc
select jsonb_path_query_array('{"a": [1, 2, 3]}', '$.a[*] ? (@ >= $x)', vars => '{"x": 2}'), jsonb_path_query_first('[1, 2]', '$[*] ? (@ > 1)'), jsonb_path_query_first('[1, 2]', '$[*] ? (@ > 9)')
select jsonb_path_exists('{"a": 1}', 'strict $.b', silent => true), jsonb_path_exists('{"a": 1}', '$.b'), jsonb_path_match('{"a": 1}', '$.a == 1')
select jsonb_path_query('{"a": 1}', 'strict $.b')
select jsonb_path_match('{"a": 1}', '$.a')
select jsonb_path_query('1', '$ / 0')
select jsonb_path_query('1', '$x')
select jsonb_path_query('1', '$', '[]')
select * from jsonb_path_query('[{"a": 1}, {"a": 2}]', '$[*].a') with ordinality as x(v, n) order by n
select doc @? '$.a ? (@ > 1)', doc @@ '$.a > 1', jsonb_path_query_array(doc, '$.**.a') from (values ('{"a": 1}'::jsonb), ('{"a": 2}'), ('[{"a": 3}]'), (null)) d(doc) order by 3
select 'x'::jsonpath
select '$.a b'::jsonpath
select '$ ? (@ like_regex "(")'::jsonpath
select regexp_replace(E'a\nb', 'a.b', 'x', 'p') = E'a\nb', regexp_replace(E'a\nb', '^b', 'x', 'w'), regexp_replace(E'a\nb', 'a.b', 'x', 'ns'), regexp_replace(E'a\nb', '^b', 'x', 'n')
select (a) = (b), (a) <> (b), row(a.x, a.y) = row(b.x, b.y) from (values (1, null::int), (2, 3)) a(x, y), (values (1, null::int), (2, 3)) b(x, y) order by a.x, b.x
select row() is null, row() is not null
