-- GROUP BY, HAVING, aggregates, grouping sets
select count(*), count(dept), count(distinct dept) from emp
select max(pay), min(pay), avg(pay), sum(pay) from emp
select max(name), min(name), max(hired), min(left_at) from emp
select max(at), min(at) from sale
select max(kind), min(kind), max(note) from sale
select avg(qty), sum(qty), avg(amount) from sale
select avg(i2), avg(i4), avg(i8), avg(n2), avg(f4) from num where id in (1, 4, 6, 7)
select sum(i2), sum(i4), sum(n2), sum(f4) from num where id in (1, 4, 6, 7)
select sum(i8) from num
select sum(n) from num where id <> 8
select sum(n), avg(n), max(n), min(n) from num
select count(*) from emp having count(*) > 100
select count(*) from emp having count(*) < 100
select 1 from emp having true
select name from emp having true
select dept, count(*) from emp group by dept order by dept
select dept, count(*) filter (where active) as up, count(*) - count(active) as unknown from emp group by dept order by dept
select dept, avg(pay) from emp group by dept having avg(pay) > 5000 order by dept
select dept, avg(pay) from emp group by dept having count(*) > 1 and max(pay) is not null order by dept
select dept, sum(pay) from emp group by dept order by sum(pay) desc nulls last
select dept from emp group by dept order by count(*) desc, dept
select dept + 1 as d, max(name) from emp group by d order by d
select dept + 1, max(name) from emp group by dept order by 1
select dept + 1, max(name) from emp group by 1 order by 1
select dept, name from emp group by dept
select d.id, d.name, count(e.id) from dept d left join emp e on e.dept = d.id group by d.id order by d.id
select d.name, count(e.id) from dept d left join emp e on e.dept = d.id group by d.id order by 2, 1
select count(*), dept from emp group by count(*)
select max(count(*)) from emp group by dept
select dept from emp group by 5
select dept as name, count(*) from emp group by name order by count(*), 1
select active, array_agg(name order by name) from emp group by active order by active
select dept, string_agg(name, '+' order by pay desc nulls last, name) from emp group by dept order by dept
select dept, json_agg(name order by id) from emp group by dept order by dept
select jsonb_object_agg(name, pay) from emp where dept = 1
select jsonb_agg(tags) from emp where id < 4
select jsonb_agg(info -> 'age' order by id) from emp where id < 5
select json_agg(pay order by id), json_agg(hired order by id) from emp where id < 4
select array_agg(distinct dept order by dept desc) from emp
select array_agg(dept order by id), array_agg(dept) filter (where false) from emp
select string_agg(distinct kind, ',' order by kind) from sale
select extract(hour from at) as h, count(*) from sale group by h order by h limit 4
select date_trunc('day', at) as d, sum(amount) from sale group by 1 order by 1
select kind, qty % 2, count(*), sum(amount) from sale group by kind, qty % 2 order by 1, 2
select kind, qty, count(*) from sale group by rollup (kind, qty) having count(*) > 6 order by 1, 2, 3
select kind, qty % 2 as odd, grouping(kind, qty % 2), count(*) from sale group by cube (kind, qty % 2) order by 3, 1, 2
select kind, count(*) from sale group by grouping sets ((kind), ()) order by 1 nulls last, 2
select qty, kind, sum(amount) from sale group by grouping sets ((qty), (kind), (qty, kind)) having sum(amount) > 200 order by 1, 2, 3
select count(*) from sale group by ()
select count(*) from sale where false group by ()
select count(*) from sale where false group by rollup (kind)
select kind, count(*) from sale where false group by grouping sets ((kind), ()) order by 1
select dept, active, count(*) from emp group by dept, rollup (active) order by 1, 2, 3
select dept, grouping(active) from emp group by dept
select grouping(dept) from emp group by dept order by 1 limit 1
select group_concat(name) from emp
select sum(name) from emp
select avg(hired) from emp
select sum(distinct qty), count(distinct qty), avg(distinct qty) from sale
select max(distinct kind) from sale
select bool_and(active), bool_or(active), every(pay >= 0) from emp
select bit_and(qty), bit_or(qty) from sale
select stddev(qty), variance(qty), stddev_pop(qty), var_pop(qty) from sale
select round(stddev(amount), 6), round(variance(amount), 6) from sale
select stddev(f8) from num where id in (1, 6, 7)
select corr(qty, amount)::numeric(8,6), regr_count(qty, amount) from sale
select percentile_cont(0.5) within group (order by amount) from sale
select percentile_disc(0.9) within group (order by kind) from sale
select percentile_cont(array[0.25, 0.5]) within group (order by qty) from sale
select mode() within group (order by kind) from sale
select dept, percentile_disc(0.5) within group (order by pay) from emp group by dept order by dept
select rank(5000) within group (order by pay) from emp
select percentile_cont(0.5) within group (order by name) from emp
select count(*) filter (where qty > 2), sum(amount) filter (where kind is null) from sale
select count(*, 1) from sale
select count() from sale
select max() from sale
select sum(distinct amount, qty) from sale
select any_value(dept) from emp
select min(tags), max(tags) from emp
select min(active) from emp
select max(info) from emp
select sum(at - '2024-01-01') from sale where id < 4
select avg(left_at - hired) from emp
select sum(pay) / count(*), sum(pay) / nullif(count(pay), 0) from emp
select sum(sum(pay)) over (), dept from emp group by dept order by dept
select dept, count(*) * 100.0 / sum(count(*)) over () from emp group by dept order by dept
select case when count(*) > 2 then 'big' else 'small' end as s, dept from emp group by dept order by dept
select coalesce(dept, -1), count(*) from emp group by coalesce(dept, -1) order by 1
select coalesce(dept, -1), count(*) from emp group by coalesce(dept, -2) order by 1
select upper(site), sum(budget) from dept group by upper(site) order by 1
select site, sum(budget) from dept group by site having sum(budget) > (select avg(budget) from dept) order by 1
select x, count(*) from (select dept as x from emp union all select boss from emp) u group by x order by x
select max(x) from (select count(*) as x from emp group by dept) q
select dept, (select count(*) from sale s where s.emp = min(e.id)) from emp e group by dept order by dept
select dept from emp group by dept having max(pay) = (select max(pay) from emp)
select distinct count(*) from emp group by dept order by 1
select distinct on (count(*)) count(*), dept from emp group by dept order by 1, 2
select count(*) from emp group by true
select min(id), max(id), count(*) from emp group by id % 3 order by id % 3
select pay, count(*) from emp group by pay order by pay nulls first
select i4 / 7, count(*) from num group by i4 / 7 order by 1
select f8, count(*) from num group by f8 order by f8
select n, count(*) from num group by n order by n
select tags, count(*) from emp group by tags order by tags
select info -> 'age', count(*) from emp group by 1 order by 2 desc, 1
select attrs ->> 'color', count(*) from item group by 1 order by 1
select kind::text, length(kind), count(*) from sale group by kind order by kind
-- names of tables beside a join or an aggregate
select e.tableoid = 'emp'::regclass, e.tableoid::regclass from emp e join dept d on d.id = e.dept where e.id = 1
select e.id, 'emp'::regclass, pg_typeof(e.pay), pg_typeof(e.pay)::oid, 'emp'::regclass::oid > 0, pg_typeof(e.tags)::text from emp e join dept d on d.id = e.dept order by 1
select tableoid::regclass, count(*) from emp group by tableoid::regclass
select tableoid::regclass::text, count(*), max(tableoid::regclass::text) from emp group by 1
select id, tableoid::regclass::text as t from emp union all select id, tableoid::regclass::text from dept order by 1, 2
select x.t, count(*) from (select tableoid::regclass as t from emp union all select tableoid::regclass from dept) x group by x.t order by x.t::text
select array_agg(distinct tableoid::regclass), json_agg(tableoid::regclass) from dept
select coalesce(null, 'emp'::regclass), case when e.id > 0 then 'emp'::regclass else 'dept'::regclass end from emp e join dept d on d.id = e.dept where e.id = 2
-- GROUP BY DISTINCT
select dept, boss, count(*) from emp group by distinct rollup (dept, boss), rollup (dept) order by 1, 2, 3
select dept, boss, count(*), grouping(dept, boss) from emp group by distinct cube ((dept, boss), dept), grouping sets (dept, ()) order by 1, 2, 3, 4
select dept, boss, count(*) from emp group by distinct dept, grouping sets ((dept, boss), rollup (boss), ()) order by 1, 2, 3
select dept, count(*) from emp group by distinct dept, dept order by 1
select dept + 1, count(*) from emp group by distinct rollup (dept + 1), dept + 1 order by 1
select count(*) from emp group by distinct cube (id, boss, dept, pay, id, boss, dept, pay, id, boss, dept, pay, id)
