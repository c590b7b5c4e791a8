-- What can raise runs behind what guards it. `sale.qty` is 0 in places, `emp.tags`, `item.sku` are no numbers.
select count(*) from sale s join emp e on e.id = s.emp where s.qty <> 0 and 10 / s.qty > 1
select count(*) from sale s, emp e where e.id = s.emp and s.qty <> 0 and 10 / s.qty > 1
select count(*) from sale s, emp e where s.qty <> 0 and 10 / s.qty > 1 and e.id = s.emp
select count(*) from sale s join emp e on e.id = s.emp and s.qty <> 0 and 10 / s.qty > 1
select count(*) from sale s join emp e on e.id = s.emp and s.qty <> 0 where 10 / s.qty > 1
select count(*) from sale s join emp e on e.id = s.emp where 10 / s.qty > 1 and s.qty <> 0
select count(*) from emp e left join sale s on e.id = s.emp and s.qty <> 0 and 10 / s.qty > 1
select count(*) from emp e left join sale s on e.id = s.emp and s.qty <> 0 where 10 / s.qty > 1
select count(*) from emp e left join sale s on e.id = s.emp and s.qty <> 0 where coalesce(10 / s.qty, 7) > 1
select count(*) from emp e left join sale s on s.id = 400 and s.qty is not null where coalesce(10 / s.qty, 7) > 1
select count(*) from sale s right join emp e on e.id = s.emp and s.qty > 0 where 10 / s.qty >= 2
select count(*) from emp e full join sale s on e.id = s.emp and s.qty > 0 where s.qty > 0 and 10 / s.qty >= 2
select count(*) from emp e join (values ('1'), ('x'), ('7'), (null)) v(t) on v.t <> 'x' and v.t::int = e.id
select count(*) from emp e join (values ('1'), ('x'), ('7'), (null)) v(t) on v.t::int = e.id where v.t <> 'x'
select count(*) from emp e join (values ('1'), ('x'), ('7'), (null)) v(t) on v.t::int = e.id
select count(*) from emp e left join (values ('1'), ('x'), ('7')) v(t) on v.t <> 'x' and e.id = v.t::int
select count(*) from emp e left join (values ('1', 'n'), ('x', 's'), ('7', 'n')) v(t, k) on v.k = 'n' and e.id + 1 > v.t::int
select count(*) from emp e, (values ('1', 'n'), ('x', 's'), ('7', 'n'), ('y', null)) v(t, k) where v.k = 'n' and e.id = v.t::int
select e.id, v.t::int + 1 from emp e join (values ('1'), ('x'), ('7')) v(t) on true where v.t <> 'x' order by 1, 2
select count(*) from sale s join emp e on true where e.id = 1 and s.qty > 0 and 10 / s.qty > 1 and 20 / s.qty > 2 and s.id % s.qty = 0
select count(*) from sale s join emp e on e.id = s.emp where (s.qty = 0 or 10 / s.qty > 1)
select count(*) from sale s join emp e on e.id = s.emp where not (s.qty = 0 or 10 / s.qty > 1)
select count(*) from sale s join emp e on e.id = s.emp where case when s.qty = 0 then false else 10 / s.qty > 1 end
select count(*) from sale s join emp e on e.id = s.emp where coalesce(nullif(s.qty = 0, false), 10 / s.qty > 1)
select s.id, s.qty <> 0 and 10 / s.qty > 1, s.qty = 0 or 10 / s.qty > 1 from sale s join emp e on e.id = s.emp order by 1
select s.id, s.qty <> 0 and 10 / s.qty > 1 and 20 % s.qty = 0 or s.qty = 0 from sale s join emp e on e.id = s.emp order by 1
select s.id, (s.qty is null or s.qty <> 0) and (nullif(s.qty, 3) = 1 or 10 / s.qty > 1) from sale s join emp e on e.id = s.emp order by 1
select s.id, case s.qty when 0 then -1 else 10 / s.qty end from sale s join emp e on e.id = s.emp order by 1
select s.id, coalesce(case when s.qty > 3 then 1 end, case when s.qty > 0 then 10 / s.qty end) from sale s join emp e on e.id = s.emp order by 1
select count(*) from (select * from sale where qty <> 0) s join emp e on e.id = s.emp where 10 / s.qty > 1
select count(*) from (select id, emp, 10 / qty as q from sale where qty <> 0) s join emp e on e.id = s.emp where q > 1
select count(*) from (select id, emp, qty, 10 / qty as q from sale) s join emp e on e.id = s.emp where qty <> 0 and q > 1
select count(*) from (select id, emp, qty, 10 / qty as q from sale where id > 0) s join emp e on e.id = s.emp where qty <> 0 and q > 1
select count(*) from (select * from (select * from sale where qty <> 0) x where id > 3) s join emp e on e.id = s.emp where 10 / s.qty > 1
select count(*) from emp e left join (select * from sale where qty <> 0) s on e.id = s.emp where coalesce(10 / s.qty, 5) > 1
with w as (select * from sale where qty <> 0) select count(*) from w s join emp e on e.id = s.emp where 10 / s.qty > 1
with w as materialized (select * from sale where qty <> 0) select count(*) from w s join emp e on e.id = s.emp where 10 / s.qty > 1
with w as (select id, emp, 10 / qty as q from sale where qty <> 0) select count(*) from w s join emp e on e.id = s.emp where q > 1
select count(*) from (select qty, count(*) as n from sale where qty <> 0 group by qty) s where 10 / s.qty > 1
select count(*) from (select qty, count(*) as n from sale group by qty having qty <> 0) s where 10 / s.qty > 1
select count(*) from (select distinct qty from sale where qty <> 0) s where 10 / s.qty > 1
select count(*) from (select qty from sale where qty <> 0 union select 3) s where 10 / s.qty > 1
select count(*) from (select qty, row_number() over (partition by qty) as n from sale where qty <> 0) s where 10 / s.qty > 1
select count(*) from (select qty from sale where qty <> 0 order by id limit 7) s where 10 / s.qty > 1
select e.id from emp e where exists (select 1 from sale s where s.emp = e.id and s.qty <> 0 and 10 / s.qty > 4) order by 1
select e.id from emp e where e.id in (select 10 / s.qty from sale s where s.qty <> 0) order by 1
select e.id, (select sum(10 / s.qty) from sale s where s.emp = e.id and s.qty <> 0) from emp e order by 1
select s.id, case when s.qty <> 0 then (select 10 / s.qty) end from sale s order by 1
select s.id, case when s.qty = 0 then 0 else (select 10 / s.qty) end from sale s order by 1
select s.id, coalesce(nullif(s.qty, 0) - s.qty, (select 10 / (s.qty + 1))) from sale s order by 1
select s.id, case s.qty when 0 then 0 else (select 10 / s.qty from dept where id = 1) end from sale s order by 1
select s.id, s.qty <> 0 and (select 10 / s.qty) > 1 from sale s order by 1
select s.id, s.qty = 0 or exists (select 1 from dept d where d.id = 10 / s.qty) from sale s order by 1
select s.id from sale s where s.qty = 0 or exists (select 1 from dept d where d.id = 10 / s.qty) order by 1
select e.id, case when (select count(*) from dept) = 1 then (select id from dept) end from emp e order by 1
select e.id, case when e.dept is null then (select d.id from dept d where d.id > e.id) end from emp e where e.id > 3 order by 1
select upper(case when s.qty <> 0 then (select (10 / s.qty)::text) else 'none' end) from sale s order by 1
select sum(10 / qty) filter (where qty <> 0) from sale
select sum(1 / x) filter (where x > 0) from (values (0), (1)) t(x)
select emp, sum(10 / qty) filter (where qty <> 0), avg(10 / qty) filter (where qty > 1), count(10 / qty) filter (where qty > 0) from sale group by emp order by emp
select array_agg(10 / qty order by 20 / qty, id) filter (where qty <> 0) from sale
select string_agg((10 / qty)::text, ',' order by id) filter (where qty <> 0) from sale
select percentile_disc(0.5) within group (order by 10 / qty) filter (where qty <> 0) from sale
select id, sum(10 / qty) filter (where qty <> 0) over (order by id) from sale order by id
select max(t::int) filter (where t ~ '^[0-9]+$') from (values ('1'), ('x'), ('17')) v(t)
select emp, count(*) from sale group by emp having count(qty) > 0 and sum(qty) / count(qty) > 1 order by emp
select emp, count(*) from sale group by emp having min(qty) <> 0 and 10 / min(qty) > 1 order by emp
select qty, count(*) from sale group by qty having qty <> 0 and 10 / qty > 1 order by qty
select s.id from sale s join emp e on e.id = s.emp where s.note is not null and s.note <> '' and ascii(s.note) / length(s.note) > 50 order by 1
select s.id from sale s where s.qty <> 0 and 10 / s.qty > 1 order by s.id
select s.id from sale s where s.qty <> 0 and 10 / s.qty > 1 order by s.id % 7, s.id
select id from emp where id < 6 and (info ->> 'age') is not null and jsonb_typeof(info -> 'age') = 'number' and (info ->> 'age')::numeric > 30 order by id
select e.id from emp e join dept d on d.id = e.dept where jsonb_typeof(e.info -> 'age') = 'number' and (e.info ->> 'age')::numeric > 30 order by 1
select e.id from emp e join dept d on d.id = e.dept and jsonb_typeof(e.info -> 'age') = 'number' where (e.info ->> 'age')::numeric > d.id order by 1
select i.sku from item i join dept d on true where d.id = 1 and i.sku like 'a-%' and split_part(i.sku, '-', 2)::int > 1 order by 1
select d.id, i.sku from item i join dept d on i.sku like 'a-%' and split_part(i.sku, '-', 2)::int = d.id order by 1
update sale s set note = 'q' from emp e where e.id = s.emp and s.qty <> 0 and 10 / s.qty > 1 ;; select count(*) from sale where note = 'q'
delete from sale s using emp e where e.id = s.emp and s.qty <> 0 and 10 / s.qty > 1 ;; select count(*) from sale
merge into sale s using emp e on e.id = s.emp and s.qty <> 0 and 10 / s.qty > 4 when matched then delete ;; select count(*) from sale
select count(*) from staff s join dept d on d.name = s.dept where s.pay <> 0 and 1000 / s.pay > 0.1
select count(*) from generate_series(0, 5) g(n) join dept d on d.id = g.n where n <> 0 and 10 / n > 3
select count(*) from generate_series(0, 5) g(n) cross join lateral (select 10 / n as q where n <> 0) x where q > 3
select relname from pg_class where relname ~ '^[0-9]+$' and relname::int > 5
select count(*) > 0 from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relpages <> 0 and 10 / c.relpages >= 0 or c.relpages = 0
select count(*) from pg_type where typlen > 0 and 100 / typlen > 100
select count(*) from pg_attribute a where a.attname like 'x_9%' and substr(a.attname, 3)::int > 5
-- NOT keeps its parentheses.
select count(*) from emp e join dept d on d.id = e.dept where (not e.active) is not null
select count(*) from emp e join dept d on d.id = e.dept where (not e.active) is null or not (e.active is null)
select e.id, not (e.active is null), (not e.active) is null, (not e.active) is not true, not (e.active is not true) from emp e left join dept d on d.id = e.dept order by 1
select e.id, (not e.active) is distinct from true, not (e.active is distinct from true), (not e.active) is not distinct from null from emp e left join dept d on d.id = e.dept order by 1
select e.id, (not e.active) in (true, null), not (e.active in (true)), (not e.active) = true, (not e.active) <> e.active from emp e left join dept d on d.id = e.dept order by 1
select e.id, (e.id not in (select dept from emp where dept is not null)) is not false, (e.id not between 2 and 4) is unknown, (not exists (select 1 from dept d where d.id = e.id)) is true from emp e order by 1
select e.dept, count(*) filter (where (not e.active) is not null), bool_and((not e.active) is not true) from emp e left join dept d on d.id = e.dept group by e.dept having (not bool_or(e.active)) is not true order by 1
select case when (not e.active) is null then 'null' else 'set' end, count(*) from emp e join dept d on d.id = e.dept group by 1 order by 1
select -(-e.id), - e.id * 2, (e.id - (3 - e.id)), e.id - -3, 2 * (e.id + 1), (7 - e.id) - 1, 7 - (e.id - 1), 8 / (e.id / 2 + 1), (8 / e.id) / 2, e.id % (e.id + 1) from emp e join dept d on d.id = e.dept order by e.id
select (e.name || 'a') like '%a', e.name || ('a' like 'a')::text, (e.name like 'A%') = e.active, not e.name like 'A%' from emp e join dept d on d.id = e.dept order by e.id
select (not (relkind = 'r')) is not null, (not relhasindex) in (true), (relname not like 'pg%') is not false, not (relname between 'a' and 'b') and true from pg_class where relname = 'emp'
select count(*) from pg_class where (not relhasindex) is null
select count(*) from pg_class where not relhasindex is null and relname = 'emp'
select count(*) from emp e left join sale s on e.id = s.emp and e.dept = 2 where coalesce(10 / nullif(s.qty, 0), 7) > 1
select count(*) from emp e left join (select * from sale where qty is not null and id < 4) s on e.id = s.emp where coalesce(10 / s.qty, 5) > 1
select count(*) from (select id, emp, qty from sale where note is null or note <> 'zzz') s join emp e on e.id = s.emp and s.qty <> 0 where s.id < 100 and 10 / s.qty > 1 and e.id > 0
select count(*) from sale s join (select id, 100 / id as q from emp where id <> 3) e on e.id = s.emp and s.qty = e.q % 5
select count(*) from sale s join item i on i.stock = s.qty and i.stock <> 0 and s.qty <> 0 and 10 / (i.stock * s.qty) >= 0
select count(*) from sale where qty <> 0 and 10 / qty > 1 group by qty % 2 order by 1
select count(*) from pg_class where relname like 'x9%' and substr(relname, 3)::int > 5 or relname = 'emp'
select count(*) from sale s join lateral (select e.id from emp e where e.id = s.emp and s.qty <> 0) x on 10 / s.qty > 1
select count(*) from sale s join emp e on e.id = 10 / s.qty where s.qty <> 0
select count(*) from sale s where s.qty <> 0 and (select e.id from emp e where e.id = 10 / s.qty) > 1
with w as (select * from sale where qty <> 0), v as (select *, 10 / qty as q from w) select count(*) from v a join v b using (id) where a.q > 1 and b.q > 1
-- JSON of values that FILTER keeps out
select json_agg(10 / x) filter (where x > 1) from (values (0), (1), (2)) t(x)
select jsonb_agg(10 / x order by 10 / x) filter (where x > 0) from (values (0), (1), (2)) t(x)
select json_agg(distinct 10 / x) filter (where x > 0) from (values (0), (1), (2)) t(x)
select json_object_agg(x, 10 / x) filter (where x > 1), jsonb_object_agg(10 / x, x) filter (where x > 1) from (values (0), (1), (2)) t(x)
select jsonb_agg(10 / b) filter (where b <> 0) over (order by b) from (values (0), (1), (2)) t(b) order by b
-- what can raise, of every kind, behind a guard
select max(x) filter (where x is distinct from null and 1/x > 0) from (values (1), (2)) t(x)
select count(*) from emp e join sale s on s.emp = e.id and s.qty > 0 and 100 / s.qty > 20
select count(*) from emp e join sale s on s.emp = e.id where s.note is not null and length(s.note) > 1 and substr(s.note, 2, 1) <> '' and ascii(substr(s.note, 2)) > 90
select e.id from emp e left join dept d on d.id = e.dept where d.site is null or d.site <> 'Rom' and 1 / (length(d.site) - 3) = 1 order by 1
select p.a from pair p where p.v is not null and (string_to_array(p.v, ':'))[2]::int = 3 order by 1
select e.id from emp e join dept d on d.id = e.dept where case when e.tags is null then false else 1 / cardinality(e.tags) > 0 end order by 1
select e.id from emp e join dept d on d.id = e.dept where e.tags is not null and cardinality(e.tags) > 0 and 2 / cardinality(e.tags) >= 1 order by 1
select e.id, (select 1 / nullif(count(*), 0) from sale s where s.emp = e.id and s.qty <> 0 and 10 / s.qty > 1) from emp e order by 1
select dept, sum(pay) from emp group by dept having count(pay) > 0 and 1000 / count(pay) > 300 order by 1
select dept, sum(pay) / count(pay) from emp group by dept having count(pay) > 0 order by 1
select x from (values (0), (1), (2)) t(x) where x <> 0 and x in (select 10 / y from (values (0), (5), (10)) s(y) where y <> 0)
select x from (values (0), (1), (2)) t(x) where x = 0 or exists (select from dept where id = 2 / x) order by x
select x, y from (values (0), (1), (2)) t(x) join (values (1), (2)) s(y) on case when x = 0 then false else y / x = 1 end order by 1, 2
select x, y from (values (0), (1), (2)) t(x) left join (values (1), (2)) s(y) on x <> 0 and y / x = 1 order by 1, 2
with c as (select x from (values ('1'), ('x')) t(x) where x ~ '^\d+$') select x::int + 1 from c
with c as not materialized (select x from (values ('1'), ('x')) t(x) where x ~ '^\d+$') select c.x::int + 1 from c join dept d on d.id = c.x::int
with c as materialized (select x::int as i from (values ('1'), ('2')) t(x)) select * from c join dept d on d.id = c.i order by 1
select i::int from (select unnest(array['1', 'x']) as i) q where i <> 'x'
select i::int from unnest(array['1', 'x', null]) i where i <> 'x'
select * from (select x::int as y from (values ('1'), ('2')) t(x)) q where y > 1
select * from (select case when x ~ '\d' then x::int end as y from (values ('1'), ('a')) t(x)) q where y is not null
select count(*) from generate_series(-3, 3) g where g > 0 and sqrt(g) > 1 and ln(g) > 0
select sum(1.0 / g) filter (where g <> 0), count(*) filter (where g <> 0 and 6 % g = 0) from generate_series(-3, 3) g
select g, sum(6 / g) filter (where g <> 0) over (order by g) from generate_series(-1, 1) g order by g
select json_agg(6 / g) filter (where g <> 0), jsonb_object_agg(g, 6 / g) filter (where g <> 0) from generate_series(-1, 1) g
select string_agg(chr(g), '') filter (where g > 64) from generate_series(0, 66) g
select array_agg(g::text::date) filter (where g > 20240000) from (values (1), (20240101)) v(g)
select min(s::date) filter (where s like '2%'), max(s::int) filter (where s !~ '-') from (values ('2024-01-01'), ('7')) v(s)
select percentile_disc(0.5) within group (order by s::int) filter (where s ~ '^\d+$') from (values ('x'), ('7'), ('8')) v(s)
select d.id, array_agg(100 / e.pay) filter (where e.pay <> 0) from dept d left join emp e on e.dept = d.id group by d.id order by 1
select d.id, count(e.id) filter (where e.pay > 0 and 9000 / e.pay < 2), bool_and(9000 / e.pay < 2) filter (where e.pay <> 0) from dept d left join emp e on e.dept = d.id group by rollup (d.id) order by 1
update emp set pay = 1000 / (id - 3) where id <> 3 and 1000 / (id - 3) > 0 returning id
delete from sale using emp e where e.id = sale.emp and sale.qty <> 0 and 10 / sale.qty = 5 returning sale.id
insert into dept (id, name) select 100 + e.id, e.name from emp e join dept d on d.id = e.dept where e.pay is not null and e.pay <> 0 and 10000 / e.pay < 2 returning id
merge into dept using (select id, pay from emp where pay <> 0) s on dept.id = s.id and 1 / s.pay > 0 when matched and s.pay > 0 and 100 / s.pay > 0 then update set budget = 100 / s.pay when not matched then do nothing
select coalesce(x, 1 / 0) from (values (1)) v(x)
select x, coalesce(x, 1 / (x - x)) from (values (1), (2)) v(x)
select x or 1 / (x::int) = 1 from (values (true)) v(x)
select x, x <> 0 and 1 / x > 0, x = 0 or 1 / x > 0, not (x = 0 or 1 / x < 0) from (values (0), (1)) v(x) order by 1
select e.id, e.id <> 3 and 1 / (e.id - 3) > 0, e.id = 3 or 1 / (e.id - 3) >= 0 from emp e join dept d on d.id = e.dept order by 1
select e.id, case when e.id = 3 then 0 else 6 / (e.id - 3) end as q, greatest(case when e.id <> 3 then 6 / (e.id - 3) end, 0) from emp e join dept d on d.id = e.dept order by q, 1
select e.id from emp e join dept d on d.id = e.dept order by case when e.id = 3 then 0 else 6 / (e.id - 3) end, e.id
select case when e.id = 3 then 0 else 6 / (e.id - 3) end as q, count(*) from emp e join dept d on d.id = e.dept group by q order by q
select e.id, sum(case when e.id = 3 then 0 else 6 / (e.id - 3) end) over (partition by case when e.id = 3 then 0 else 6 / (e.id - 3) end order by e.id) from emp e join dept d on d.id = e.dept order by 1
select distinct case when e.id = 3 then 0 else 6 / (e.id - 3) end from emp e join dept d on d.id = e.dept order by 1
select e.id from emp e where e.left_at is not null and extract(year from e.left_at) > 2022 and 1 / extract(month from e.left_at) < 1
select to_date(s, 'YYYY-MM-DD') from (values ('2024-01-01'), ('xx')) v(s) where s ~ '^\d{4}'
select s.v::jsonb -> 'a' from (values ('{"a": 1}'), ('nojson')) s(v) where s.v like '{%'
select s.v::jsonb ->> 'a' from (values ('{"a": 1}'), ('nojson')) s(v) join dept d on d.id = 1 where s.v like '{%' and (s.v::jsonb ->> 'a')::int = 1
select s.v::uuid from (values ('a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'), ('x')) s(v) join dept d on d.id = 1 where length(s.v) = 36
select s.v::mood from (values ('ok'), ('x')) s(v) join dept d on d.id = 1 where s.v <> 'x'
select s.v::int[] from (values ('{1}'), ('x')) s(v) join dept d on d.id = 1 where s.v <> 'x'
select s.v::interval, s.v::text from (values ('1 day'), ('x')) s(v) join dept d on d.id = 1 where s.v <> 'x'
select decode(s.v, 'hex') from (values ('00ff'), ('x')) s(v) join dept d on d.id = 1 where s.v <> 'x'
select s.v::numeric(3, 1) from (values ('12.34'), ('12345')) s(v) join dept d on d.id = 1 where length(s.v) = 5 and s.v like '%.%'
select s.v::varchar(2)::int from (values ('12a'), ('x')) s(v) join dept d on d.id = 1 where s.v <> 'x'
select s.v::bool from (values ('yes'), ('x')) s(v) join dept d on d.id = 1 where s.v in ('yes', 'no') and s.v::bool
select chr(s.v) from (values (65), (0)) s(v) join dept d on d.id = 1 where s.v > 0
select repeat('a', s.v), lpad('b', s.v), left('abc', s.v) from (values (2), (-1)) s(v) join dept d on d.id = 1 where s.v > 0
select substring('abc' from 1 for s.v) from (values (2), (-1)) s(v) join dept d on d.id = 1 where s.v > 0
select make_date(2024, s.v, 1) from (values (2), (13)) s(v) join dept d on d.id = 1 where s.v <= 12
select 2::numeric ^ s.v, s.v ^ 0.5 from (values (2.0), (-2.0)) s(v) join dept d on d.id = 1 where s.v > 0
select asin(s.v), acos(s.v) from (values (1.0::float8), (2)) s(v) join dept d on d.id = 1 where s.v <= 1
select s.v::text::int2 from (values (1), (70000)) s(v) join dept d on d.id = 1 where s.v < 30000
select factorial(s.v) from (values (3), (-1)) s(v) join dept d on d.id = 1 where s.v > 0
select timestamp '2024-01-01' at time zone s.v from (values ('UTC'), ('nowhere')) s(v) join dept d on d.id = 1 where s.v <> 'nowhere'
select date_trunc(s.v, timestamp '2024-05-06') from (values ('month'), ('x')) s(v) join dept d on d.id = 1 where s.v <> 'x'
select regexp_replace('abc', s.v, 'x') from (values ('b'), ('(')) s(v) join dept d on d.id = 1 where s.v <> '('
select 'abc' ~ s.v from (values ('b'), ('(')) s(v) join dept d on d.id = 1 where s.v <> '('
select 'abc' like s.v from (values ('a%'), ('a\')) s(v) join dept d on d.id = 1 where s.v <> 'a\'
select a.id, a.i4 = 0 or 10 / a.i4 in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19) as r from num a join num b on a.id = b.id order by a.id
select a.id, a.i4 = 0 or 10 / a.i4 in (select id from dept) as r from num a join num b on a.id = b.id order by a.id
select a.id, a.i4 = 0 or 10 / a.i4 = any (array(select id from dept)::bigint[]) as r from num a join num b on a.id = b.id order by a.id
select a.id, a.i4 = 0 or (10 / a.i4, 1) not in (select id, 1 from dept) as r from num a join num b on a.id = b.id order by a.id
select a.id, a.i4 = 0 or (10 / a.i4, a.id) in ((0, 1), (10, 1), (1, 2), (3, 8), (4, 8), (5, 8), (0, 6), (0, 7), (0, 2), (0, 3)) as r from num a join num b on a.id = b.id order by a.id
select a.id, case when a.i4 <> 0 then 10 / a.i4 in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19) end as r from num a join num b on a.id = b.id order by a.id
select a.id, a.i4 = 0 or (10 / a.i4, a.id) in ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6), (7, 7), (8, 8), (9, 0), (10, 1), (11, 2), (12, 3), (13, 4), (14, 5), (15, 6), (16, 7), (17, 8), (18, 0), (19, 1), (20, 2), (21, 3), (22, 4), (23, 5), (24, 6), (25, 7), (26, 8), (27, 0), (28, 1), (29, 2), (30, 3), (31, 4), (32, 5), (33, 6), (34, 7), (35, 8), (36, 0), (37, 1), (38, 2), (39, 3), (40, 4), (41, 5), (42, 6), (43, 7), (44, 8), (45, 0), (46, 1), (47, 2), (48, 3), (49, 4), (50, 5), (51, 6), (52, 7), (53, 8), (54, 0), (55, 1), (56, 2), (57, 3), (58, 4), (59, 5), (60, 6), (61, 7), (62, 8), (63, 0), (64, 1), (65, 2), (66, 3), (67, 4), (68, 5), (69, 6), (70, 7), (71, 8), (72, 0), (73, 1), (74, 2), (75, 3), (76, 4), (77, 5), (78, 6), (79, 7)) as r from num a join num b on a.id = b.id order by a.id
select a.id, a.i4 = 0 or 10 / a.i4 in (1, 2, 3, 4, 5, 6) as r, case when a.i4 <> 0 then 10 / a.i4 not in (1, 2, 3, 4, 5, 6, 7) end as s from num a join num b on a.id = b.id order by a.id
-- what CASE keeps from a subquery of an UPDATE's row
update emp set pay = case when id <> 1 then (select 100 / (emp.id - 1)) end returning id, pay
update emp e set pay = case when e.id <> 1 then (select 100 / (e.id - 1) from dept d where d.id = 1) else 0 end returning id, pay
update emp e set pay = case when e.id = 1 then 0 else (select max(d.id) / (e.id - 1) from dept d) end where e.id < 4 returning id, pay
update emp e set pay = (select case when e.id <> 1 then 100 / (e.id - 1) end) returning id, pay
update emp e set (pay, name) = (select case when e.id <> 1 then 100 / (e.id - 1) end, 'n' || e.id) returning id, pay, name
delete from sale s where case when s.qty <> 0 then (select 10 / s.qty) > 1 else false end returning id
insert into emp (id, name, pay) select id + 100, name, case when id <> 1 then (select 100 / (e.id - 1)) end from emp e returning id, pay
update emp set pay = case id when 1 then 0 else (select 100 / (emp.id - 1)) end returning id, pay
update emp set active = (id = 1 or (select 100 / (emp.id - 1)) > 20) and name <> 'x' returning id, active
update emp set name = name || coalesce(case when id <> 1 then (select 100 / (emp.id - 1))::text end, '?') where id < 4 returning id, name
update sale s set note = case when qty <> 0 then (select name from emp e where e.id = 10 / s.qty) end where s.id < 30 returning id, note
update emp e set pay = coalesce(nullif(e.pay, 0), (select 100 / e.pay), 1) where e.id < 4 returning id
update emp e set pay = coalesce(e.id - 1, (select 100 / (e.id - e.id))) returning id, pay
-- sets and subqueries that DuckDB joins, behind a guard
select a.id, a.i4 = 0 or 10 / a.i4 = any(array[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18]) from num a join num b on a.id = b.id order by a.id
select a.id, a.i4 = 0 or 10 / a.i4 = any(array[1,2,3,4]) from num a join num b on a.id = b.id order by a.id
select a.id, a.i4 = 0 or 10 / a.i4 in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18) from num a join num b on a.id = b.id order by a.id
select a.id, a.i4 = 0 or 10 / a.i4 in (1,2,3,4) from num a join num b on a.id = b.id order by a.id
select a.id from num a join num b on a.id = b.id where a.i4 <> 0 and 10 / a.i4 in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18) order by a.id
select a.id from num a join num b on a.id = b.id where a.i4 <> 0 and 10 / a.i4 not in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18) order by a.id
select a.id, a.i4 <> 0 and 10 / a.i4 not in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18) from num a join num b on a.id = b.id order by a.id
select a.id, case when a.i4 <> 0 then 10 / a.i4 in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18) end from num a join num b on a.id = b.id order by a.id
select a.id, sum(1) filter (where a.i4 <> 0 and 10 / a.i4 in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18)) from num a join num b on a.id = b.id group by a.id order by a.id
select a.id from num a left join num b on a.id = b.id and b.i4 <> 0 and 10 / b.i4 in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18) order by a.id, b.id
select a.id, a.i4 = 0 or 10 / a.i4 = 1 or 10 / a.i4 = 2 or 10 / a.i4 = 3 or 10 / a.i4 = 4 or 10 / a.i4 = 5 or 10 / a.i4 = 6 or 10 / a.i4 = 7 or 10 / a.i4 = 8 as r from num a join num b on a.id = b.id order by a.id
select a.id from num a join num b on a.id = b.id where a.i4 = 0 or 10 / a.i4 = 1 or 10 / a.i4 = 2 or 10 / a.i4 = 3 or 10 / a.i4 = 4 or 10 / a.i4 = 5 or 10 / a.i4 = 6 or 10 / a.i4 = 7 or 10 / a.i4 = 8 order by a.id
select a.id, a.i4 = 0 or 10 / a.i4 = any(array[1, 2, b.id]) from num a join num b on a.id = b.id order by a.id
select a.id, a.i4 = 0 or 10 / a.i4 > all(array[-1, -2]) from num a join num b on a.id = b.id order by a.id
select a.id, a.i4 = 0 or 10 / a.i4 in (select p.a from pair p) from num a join num b on a.id = b.id order by a.id
select a.id, case when a.i4 <> 0 then 10 / a.i4 in (select p.a from pair p) end from num a join num b on a.id = b.id order by a.id
select a.id, case when a.i4 <> 0 then 10 / a.i4 = any(array(select p.a from pair p)) end from num a join num b on a.id = b.id order by a.id
select a.id, case when a.i4 <> 0 then (10 / a.i4, a.id) in (select p.a, p.b from pair p) end from num a join num b on a.id = b.id order by a.id
select a.id, case when a.i4 <> 0 then 10 / a.i4 > all (select p.a from pair p where p.b = a.id) end from num a join num b on a.id = b.id order by a.id
select a.id, case when a.i4 <> 0 then 10 / a.i4 <> all (select p.a from pair p) end from num a join num b on a.id = b.id order by a.id
select a.id, case when a.i4 = 0 then null when 10 / a.i4 in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18) then 'in' else 'out' end from num a join num b on a.id = b.id order by a.id
select a.id, case a.i4 when 0 then null else 10 / a.i4 in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18) end from num a join num b on a.id = b.id order by a.id
select a.id, a.i4 <> 0 and (10 / a.i4, a.id) in ((1,1),(2,2),(3,3),(4,4),(5,5),(6,6),(7,7),(8,8),(9,9),(10,1)) from num a join num b on a.id = b.id order by a.id
select a.id, coalesce(nullif(a.i4, 0) is null or 10 / a.i4 in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18), false) from num a join num b on a.id = b.id order by a.id
select a.id, coalesce(a.i4 = 0, 10 / a.i4 in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18)) from num a join num b on a.id = b.id order by a.id
select id, max(case when i4 <> 0 then 10 / i4 end) in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18) from num group by id order by id
select a.i4, case when count(*) > 0 and sum(a.id) > 0 then 10 / count(*) in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18) end from num a join num b on a.id = b.id group by a.i4 order by 1
select a.id from num a join num b on a.id = b.id order by case when a.i4 <> 0 then 10 / a.i4 in (1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18) end, a.id
select coalesce((select name from dept where id = d.id), (select (100/(id-1))::text from dept where id = d.id)) from dept d
select coalesce((select d2.id from dept d2 where d2.id = d.id), (select 100/(id-1) from dept d3 where d3.id = d.id)) from dept d
select coalesce(d.id, (select 1/(count(*)-count(*)) from dept where name=d.name)) from dept d
select case when (select count(*) from emp where dept = d.id) > 1 then (select 100/(id-3) from dept where id = d.id) end from dept d
select e.id from emp e join dept d on d.id = e.dept where 100/(e.id-3) > -1000 limit 2
select e.id, d.name from emp e join dept d on d.id = e.dept where 100/(e.id-3) > -1000 limit 6
select e.id, 10/(3-e.id) x, d.name from emp e join dept d on d.id = e.dept order by e.id limit 2
select 10/(3-e.id) from emp e limit 2
select e.id from emp e where 10/(3-e.id) > 0 limit 2
select * from (select 10/(3-e.id) as x from emp e join dept d on d.id=e.dept) t limit 2
select g, 10/(3-g) from generate_series(1,5) g limit 2
declare c cursor for select 10/(3-id) from emp order by id ;; fetch c ;; fetch c ;; fetch c
declare c cursor for select 10/(3-id) from emp ;; fetch 2 from c ;; fetch c ;; fetch c
declare c cursor for select id from emp where 10/(3-id) > 0 ;; fetch c ;; fetch c ;; fetch c
declare c cursor for select 10/(3-id) from emp ;; fetch 3 from c
declare c scroll cursor for select 10/(3-id) from emp ;; fetch 2 from c ;; fetch prior from c ;; fetch 2 from c
declare c scroll cursor for select 10/(3-id) from emp ;; fetch last from c
declare c cursor for select 10/(3-e.id) from emp e join dept d on d.id=e.dept order by e.id ;; fetch c ;; fetch c ;; fetch c
declare c cursor for with x as (select id from dept) select 10/(2-id) from x ;; fetch c ;; fetch c
declare c cursor for select g, 10/(3-g) from generate_series(1,5) g ;; fetch 2 from c ;; fetch c
