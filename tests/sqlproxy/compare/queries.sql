-- CTEs, recursion, lateral, set operations, subqueries, generate_series
with a as (select * from emp where pay > 1000) select dept, count(*) from a group by dept order by dept
with a as (select id from emp), b as (select id from a where id > 3) select * from a except select * from b order by 1
with a(x, y) as (select id, name from emp) select y from a where x = 2
with a as materialized (select 1 as x) select * from a, a as b
with a as not materialized (select id from emp) select count(*) from a
with a as (select 1), a as (select 2) select * from a
with a(x) as (select 1, 2) select * from a
with a(x, y, z) as (select 1, 2) select * from a
with emp as (select 1 as id) select * from emp
with a as (select * from b), b as (select 1) select * from a
with recursive t(n) as (values (1) union all select n + 1 from t where n < 5) select * from t
with recursive t(n, s) as (select 1, 'a' union all select n + 1, s || chr(96 + n + 1) from t where n < 5) select * from t order by n desc
with recursive chain as (select id, name, boss, 0 as level from emp where boss is null union all select e.id, e.name, e.boss, level + 1 from emp e join chain c on e.boss = c.id) select level, string_agg(name, ',' order by name) from chain group by level order by level
with recursive chain(id, path) as (select id, array[id] from emp where id = 1 union all select e.id, c.path || e.id from emp e, chain c where e.boss = c.id) select * from chain order by path
with recursive t(n) as (select 1 union select (n * 7) % 11 from t) select count(*), sum(n) from t
with recursive t(n) as (select 1 union all select n + 1.5 from t where n < 5) select * from t
with recursive t(n) as (select 1) select * from t
with recursive t(n) as (select n from t union all select 1) select * from t
with recursive t(n) as (select 1 union all select sum(n) from t) select * from t
with recursive t(n) as (select 1 intersect select n from t) select * from t
with recursive t(n) as (select 1 union all select n + 1 from t where n < 3 order by 1) select * from t
with recursive a(n) as (select 1 union all select n + 1 from a where n < 3), b(n) as (select n * 10 from a union all select n + 1 from b where n % 10 < 2) select * from b order by 1
with recursive g(a, b) as (select 1, 2 union select p.a, p.b from pair p join g on p.a = g.b where p.b > p.a) select * from g order by 1, 2
with recursive t(d) as (select date '2024-01-29' union all select (d + interval '1 month')::date from t where d < '2024-05-01') select d from t order by d
with recursive t(id, path) as (select id, array[id] from emp where boss is null union all select e.id, path || e.id from emp e join t on e.boss = t.id) search depth first by id set ord select id from t
with recursive t(n) as (select 1 union all select n % 3 + 1 from t) cycle n set looped using path select n, looped from t order by n, looped
with a as (select id, pay from emp) select (select max(pay) from a), (select min(id) from a)
select * from (with a as (select 3 as x) select x * 2 as y from a) q
select id, (with a as (select e.id * 2 as x) select x from a) from emp e order by id limit 3
select (select name from dept where id = e.dept), name from emp e order by id
select (select count(*) from sale s where s.emp = e.id and s.amount > e.pay / 1000) from emp e order by id
select (select id from emp)
select (select id, name from emp where id = 1)
select (select id from emp where false) is null
select (select max(id) from emp) + 1, -(select 1)
select name from emp where dept = (select id from dept where name = 'ops') order by 1
select name from emp e where exists (select from sale s where s.emp = e.id and s.qty = 5) order by 1
select name from emp e where not exists (select from sale s where s.emp = e.id) order by 1
select name from emp e where id in (select emp from sale where qty > 4) order by 1
select name from emp e where id not in (select boss from emp) order by 1
select name from emp e where id not in (select boss from emp where boss is not null) order by 1
select name from emp e where (dept, id) in (select dept, max(id) from emp group by dept) order by 1
select name from emp where pay > all (select pay from emp where dept = 2) order by 1
select name from emp where pay > any (select pay from emp where dept = 1) order by 1
select name from emp where pay = some (select pay from emp where dept = 1 and id > 1) order by 1
select name from emp where id in (select id, name from emp)
select name from emp where (id, dept) in (select id from emp)
select name from emp where name in (select id from emp)
select name from emp e where pay > (select avg(pay) from emp where dept = e.dept) order by 1
select name from emp e where 2 <= (select count(*) from emp where boss = e.id) order by 1
select d.name, (select string_agg(e.name, ',' order by e.id) from emp e where e.dept = d.id) from dept d order by d.id
select d.name, array(select e.name from emp e where e.dept = d.id order by e.id) from dept d order by d.id
select d.name, exists (select 1 from emp e where e.dept = d.id and not e.active) from dept d order by d.id
select d.name, x.name, x.pay from dept d, lateral (select name, pay from emp e where e.dept = d.id order by pay desc nulls last, id limit 1) x order by 1
select d.name, x.n from dept d left join lateral (select count(*) as n from emp e where e.dept = d.id having count(*) > 1) x on true order by 1
select d.name, x.n from dept d cross join lateral (select count(*) from emp e where e.dept = d.id) x(n) order by 1
select d.name, e.name from dept d, (select * from emp where dept = d.id) e
select e.id, t from emp e, unnest(e.tags) t order by e.id, t nulls last
select e.id, t, o from emp e left join lateral unnest(e.tags) with ordinality u(t, o) on true order by e.id, o
select e.id, x.key, x.value from emp e, jsonb_each(e.info) x where e.id < 3 order by 1, 2
select e.id, x from emp e, jsonb_array_elements(e.info -> 'lang') x where jsonb_typeof(e.info -> 'lang') = 'array' order by 1, 2::text
select e.id, x from emp e, jsonb_array_elements_text(e.info -> 'lang') as x where e.id in (1, 4) order by 1, 2
select e.id, x from emp e cross join lateral jsonb_object_keys(e.info) x where e.id < 3 order by 1, 2
select id from emp union select id from dept order by id
select id from emp union all select id from dept order by id limit 6
select dept from emp intersect select id from dept order by 1
select id from dept except select dept from emp order by 1
select dept from emp except all select 1 order by 1
select dept from emp intersect all select dept from emp where id < 3 order by 1
select id, name from emp where id < 3 union select id, name from dept order by name desc
select name from emp union select 1
select id from emp union select id, name from emp
select 1 as a union select 2 as b order by b
select 1 as a union select 2 as b order by a + 1
select '1' union select 2 order by 1
select 'x' union select 'y'::varchar(3) union all select null order by 1
select null union select null
select 1::int2 union select 2::int8 union select 3.5::float4 order by 1
select date '2024-01-01' union select timestamp '2024-01-01 12:00' order by 1
select array[1] union select array[2] order by 1
select 1 union (select 2 union all select 2) order by 1
(select id from emp order by pay desc nulls last limit 1) union all (select id from emp order by pay nulls last limit 1)
select 1 union select 2 intersect select 2 order by 1
select 1 except select 1 union select 3
values (1), (2) union all values (2), (3) order by 1
values (1, 'a') except values (1, 'a')
select * from (select 1 as x union select 2) u where x > 1
select count(*) from (select dept from emp union select dept from emp) u
select n2 from num intersect select n from num order by 1
select g from generate_series(1, 10, 4) g
select g from generate_series(5, 1, -2) g
select g from generate_series(1, 3, 0) g
select g from generate_series(1.5, 4, 1.25) g
select g from generate_series(1::int8, 2::int8) g
select g, pg_typeof(g) from generate_series(1, 2::int8) g
select g from generate_series(timestamp '2024-02-28', '2024-03-02', '1 day') g
select g from generate_series(date '2024-02-28', date '2024-03-01', interval '1 day') g
select g from generate_series(timestamptz '2024-03-31 00:00 Europe/Zurich', '2024-03-31 06:00 Europe/Zurich', '1 hour') g
select g from generate_series(date '2024-01-31', '2024-06-01', '1 month') g
select g from generate_series(null, 3) g
select generate_series(1, 3) + 1, generate_series(1, 2)
select id, generate_series(1, id) from emp where id < 3 order by 1, 2
select sum(g), count(*) from generate_series(1, 1000) g where g % 3 = 0
select g.x from generate_series(1, 2) as g(x)
select g.ordinality, g.g from generate_series(7, 8) with ordinality g
select * from rows from (generate_series(1, 3), unnest(array['a', 'b'])) as r(x, y)
select * from unnest(array[1, 2], array['a', 'b', 'c']) u(a, b)
select * from unnest(array[[1, 2], [3, 4]]) x order by 1
select unnest(array[1, 2]), unnest(array['a', 'b', 'c'])
select count(*) from generate_series(1, 3) a, generate_series(a, 3) b
select * from generate_subscripts(array['x', 'y'], 1) s order by 1
select * from regexp_matches('foobarbequebaz', 'ba.', 'g') m
select * from regexp_split_to_table('a1b22c', '\d+') m
select * from string_to_table('a,b,,c', ',', 'b') m
select name from emp order by (select count(*) from sale where emp = emp.id), name
select id from emp e order by (select name from dept where id = e.dept) nulls first, id
select case when exists (select 1 from emp where pay is null) then 'some' else 'none' end
select coalesce((select pay from emp where id = 5), (select max(pay) from emp))
select (select array_agg(x order by x) from (select e.id as x union select 0) q) from emp e where id = 2
select e.name, s.n, s.total from emp e join (select emp, count(*) as n, sum(amount) as total from sale group by emp) s on s.emp = e.id where s.total > 50 order by s.total desc
select count(*) from emp a, emp b where a.id < b.id and a.dept = b.dept
select a.id, b.id from emp a left join emp b on a.pay = b.pay and a.id <> b.id order by 1, 2
select e.id, count(s.id), coalesce(sum(s.amount), 0) from emp e left join sale s on s.emp = e.id and s.qty > 3 group by e.id order by e.id
select x.a, y.b from (values (1), (2)) x(a) full join (values (2), (3)) y(b) on x.a = y.b order by 1, 2
select * from (values (1, 2)) x(a, b) join (values (1, 3)) y(a, c) using (a) join (values (1, 4)) z(a, d) using (a)
select e.id from emp e join dept d on d.id = e.dept and d.budget > (select avg(budget) from dept) order by 1
select id from emp for update
select id from emp where id = 1 for update of emp
select id from emp where id = 1 for update of other
select id from emp where id = 1 for no key update nowait
select id from emp where id < 3 order by id for share skip locked
select e.id from emp e join dept d on d.id = e.dept where e.id = 1 for update of e
select count(*) from emp for update
select distinct dept from emp for update
select 1 union select 2 for update
select n from (values (1.0), (2.5), (null), (1.0), (0.0)) t(n) intersect select n from (values (1.0), (1.0), (null), (0.0)) t(n) order by 1
select n from (values (1.0), (2.5), (null), (1.0)) t(n) intersect all select n from (values (1.0), (1.0), (1.0), (null)) t(n) order by 1
select n from (values (1.0), (2.5), (null), (1.0)) t(n) except select n from (values (1.0), (3.0)) t(n) order by 1
select n from (values (1.0), (2.5), (null), (1.0), (1.0)) t(n) except all select n from (values (1.0), (null)) t(n) order by 1
select count(*), sum(n) from (select n from (values (1.0), (2.50), (7)) t(n) except select n from (values (1.000), (2.5)) t(n)) s
select count(*) from (select n::int, j from (values (1.0, '{"a": 1, "b": 2}'::jsonb), (2, null)) t(n, j) intersect select n::int, j from (values (1.00, '{"b": 2, "a": 1.0}'::jsonb), (2, null)) t(n, j)) s
select rtrim(c) from (select 'a '::char(3) as c union all select 'b' except select 'a'::char(5)) s
select n2 from num except select n from num order by 1
select n from num except all (select n2 from num intersect select n from num) order by 1
select count(*) from (select n, n2 from num except select n2, n from num) s
-- functions that return sets beside DISTINCT ON
select distinct on (generate_series(1, 3)) generate_series(1, 3) as g, k from src order by 1, k
select distinct on (g) generate_series(1, 3) as g, k from src order by g, k desc
select distinct on (g % 2) k, g % 2 as h from (select k, generate_series(1, k) as g from src) x order by g % 2, k
select distinct on (t) t, generate_series(1, 2) as g from src order by t, k
select distinct on (t) t, generate_series(1, 2) as g from src order by t, g desc
select distinct on (generate_series(1, k) % 2) k, generate_series(1, k) as g from src order by generate_series(1, k) % 2, k
select distinct on (generate_series(1, 2), t) t, k from src order by generate_series(1, 2), t, k
select distinct on (unnest(array[k, 1])) k, t from src order by unnest(array[k, 1]), k desc limit 3
select distinct generate_series(1, k) as g from src order by g
select distinct on (k) k, generate_series(1, 2) as g from src where k < 3 order by k
select distinct on (k) k, generate_series(1, 2) as g from src where k < 3
select ctid is null from emp cross join dept
select ctid is null from (emp join dept on true), sale where false
select tableoid from emp left join dept on false
select emp.ctid is null from emp join dept on false
select id from emp join dept using (id) where ctid is null
select (select ctid from sale join dept on true limit 1) is null from emp order by id
select e.id from emp e join dept d on ctid is not null
select e.id from emp e join dept d on e.ctid is null join sale s on xmin is not null
with recursive a as (select 1 union all select * from b), b as (select 1 union all select * from a) select * from a
with recursive a as (select * from b), b as (select * from a) select * from a
with recursive a as (select * from b), b as (select 1 as x) select * from a
with recursive a as (select * from c), b as (select 1 as x), c as (select x + 1 from b) select * from a
with recursive a as (select * from c), b as (select * from a), c as (select 1 from b) select * from a
with recursive a as (select * from (select * from b) q), b as (select x from a where x in (select 1 from a)) select * from a
with recursive a as (with b as (select 1) select * from b), b as (select * from a) select * from b
with recursive a as (select 1 from a), b as (select 2) select * from b
with recursive b as (select * from c union all select x + 1 from b where x < 3), c as (select 1 as x) select * from b
with recursive a as (select * from b), b as (insert into dept values (9, 'x') returning id) select * from a
with recursive a as (with b as (select 7 as x) select x from b), b as (select x from a) select * from b
with recursive a as (select 1), a as (select 2) select * from a
with recursive t(n) as (values (1) union all select n + 1 from t, m where n < top), m as (select 4 as top) select * from t
select 'nothere'::regclass from dept
select 'dept'::regclass, 'public.dept'::regclass, '"dept"'::regclass, 'dept_pkey'::regclass, 'staff'::regclass, 'q'::regclass from dept limit 1
select 'pg_class'::regclass from dept limit 1
select 'pg_catalog.pg_class'::regclass::oid from dept limit 1
select 'dept'::text::regclass from dept limit 1
select name::regclass from dept
select ('de' || 'pt')::regclass from dept limit 1
select 'pg_class'::text::regclass from dept limit 1
select t.n::regclass::oid = 'dept'::regclass from (select 'dept'::text as n) t, dept limit 1
select t.n::regclass = 'dept'::regclass from (select 'dept'::text as n) t, dept limit 1
select to_regclass('dept'), to_regclass('nothere'), to_regclass('public.emp'), to_regclass('nosuch.emp') from dept limit 1
select to_regclass(name) from dept
select to_regclass(x.n) from (values ('dept'), ('zz')) x(n), dept d where d.id = 1
select d.tableoid::regclass, d.tableoid = 'dept'::regclass, d.tableoid = to_regclass('dept') from dept d where id = 1
select (select 'dept'::text)::regclass
select (select 'dept'::text)::regclass::text from dept limit 1
select n::regclass from (select relname::text as n from pg_class where relname = 'dept') t
select q.x::regclass from (select oid as x from pg_class where relname = 'dept') q
select tableoid::regclass::text, count(*) from dept group by 1
select max(tableoid::regclass::text) from emp
select ''::regclass from dept
select 'DEPT'::regclass, ' dept '::regclass from dept limit 1
select '"DEPT"'::regclass from dept
select oid from pg_class where oid = 'nothere'::regclass
select coalesce(to_regclass(null), 'emp'::regclass) from dept limit 1
select 'pg_catalog.pg_class'::regclass, 'information_schema.tables'::regclass from dept limit 1
prepare p(text) as select $1::regclass from dept limit 1 ;; execute p('emp') ;; execute p('zzz')
prepare p(text) as select to_regclass($1), id from dept where id = 1 ;; execute p('emp') ;; execute p('zzz')
prepare p(regclass) as select id from dept where tableoid = $1 order by id ;; execute p('dept') ;; execute p('emp')
prepare p as select id from dept where tableoid = $1 order by id ;; execute p('emp')
select make_interval(days => 3), make_interval("hours" => 2), make_date(year => 2024, month => 1, day => 2)
select make_timestamp(year => 2024, month => 1, mday => 2, hour => 3, min => 4, sec => 5.5), make_timestamptz(2024, 1, mday => 2, min => 4, hour => 3, sec => 5, timezone => 'Europe/Rome')
select make_time(hour => 1, min => 2, sec => 3), make_time(sec => 1.5, min => 2, hour => 3)
select jsonb_set(target => '{"a":1}'::jsonb, path => '{a}', new_value => '2')
select jsonb_set('{"a":1}'::jsonb, path => '{b}', replacement => '2', create_if_missing => false)
select jsonb_set(jsonb_in => '{"a":1}', path => '{b}', replacement => '2')
select jsonb_insert('{"a":[1]}', '{a,0}', '2', insert_after => true)
select regexp_replace(string => 'abc', pattern => 'b', replacement => 'x')
select jsonb_strip_nulls("target" => '{"a":null}')
select make_date(2024, month => 1, day => 2), make_date(year := 2024, month := 2, day := 3)
select make_date(2024, year => 1, day => 2)
select make_date(year => 2024, day => 2)
select nosuch(a => 1)
select value from jsonb_array_elements(from_json => '[1,2]') order by 1
select make_interval(nope => 3)
select make_date(year => 2024, month => 1, 2)
