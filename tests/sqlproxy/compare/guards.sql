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
