-- WHERE, ORDER BY, DISTINCT, LIMIT over one table and several
select id, name from emp where pay > 5000 order by pay desc, id
select id from emp where pay between 100 and 7000.50 order by id
select id from emp where pay not between 100 and 7000.50 order by id
select id from emp where pay between symmetric 7000.50 and 100 order by id
select id from emp where dept in (1, 2) and not active order by id
select id from emp where dept not in (1, null) order by id
select id from emp where (dept, active) in ((1, true), (3, true)) order by id
select id from emp where (dept, id) > (1, 2) order by id
select id from emp where (dept, id) <= (2, 4) order by dept, id
select id from emp where row(dept, boss) is not distinct from row(null, 6)
select id from emp where active is true order by id
select id from emp where active is not true order by id
select id from emp where active is unknown order by id
select id from emp where not (active is false) order by id
select id from emp where boss is null or boss = 4 order by id
select id from emp where name like '%a%' order by id
select id from emp where name like '_a_' order by id
select id from emp where name ilike 'A%' order by id
select id from emp where name like 'gus\_%' order by id
select id from emp where name like 'gus!_%' escape '!' order by id
select sku from item where sku like 'b\%_' order by 1
select sku from item where sku like '%\\%' order by 1
select sku from item where sku like 'c%' escape '' order by 1
select sku from item where sku not like 'a%' order by 1
select sku from item where sku ~ '^[ab].\d$' order by 1
select sku from item where sku !~* '^A' order by 1
select sku from item where sku similar to '(a|b)[-%]_' order by 1
select sku from item where sku similar to '%(1|2)' order by 1
select sku from item where sku like any (array['a%', 'c%']) order by 1
select sku from item where sku not like all (array['a%', 'c%']) order by 1
select sku from item where sku like 'a\'
select id from emp where hired = '2020-02-29'
select id from emp where hired > '2019-06-01' and hired < date '2022-01-01' order by id
select id from emp where hired + interval '1 year' > '2021-03-01' order by id
select id from emp where extract(year from hired) in (2018, 2022) order by id
select id from emp where left_at::date = '2022-02-03'
select id from emp where left_at is null and hired is not null order by hired desc
select id from emp where tags @> '{a}' order by id
select id from emp where tags && array['c', 'b'] order by id
select id from emp where 'b' = any (tags) order by id
select id from emp where 'b' <> all (tags) order by id
select id from emp where tags[1] = 'b' order by id
select id from emp where tags = '{}'
select id from emp where cardinality(tags) > 1 order by id
select id from emp where array_length(tags, 1) is null order by id
select id from emp where info @> '{"age": 36}'
select id from emp where info ? 'lang' order by id
select id from emp where info ->> 'age' = 'n/a'
select id from emp where (info -> 'age')::text = '41.5'
select id from emp where info #>> '{home,city}' = 'Bern'
select id from emp where jsonb_typeof(info) = 'array'
select id from emp where info = 'null'
select id from emp where rate = 'NaN'
select id from emp where rate > 1 order by rate desc
select id from emp where rate < 'infinity' order by rate
select id, rate from emp order by rate nulls first, id
select id, rate from emp order by rate desc nulls last, id
select id, boss from emp order by boss nulls first, id desc
select id, active from emp order by active, id
select id, tags from emp order by tags, id
select name from emp order by lower(name) desc
select name from emp order by length(name), name
select name, pay * 12 as yearly from emp order by yearly desc nulls last, name
select name from emp order by case when dept = 2 then 0 else 1 end, name
select name as n from emp order by n desc limit 2
select name from emp order by 1 offset 5
select name from emp order by 2
select name from emp order by pay desc nulls last, id limit 3 offset 1
select name from emp order by id limit 0
select name from emp order by id limit -1
select name from emp order by id offset -1
select name from emp order by id limit 1 + 1
select name from emp order by id fetch first row only
select name from emp order by id limit '2'
select pay from emp order by pay fetch first 3 rows with ties
select dept from emp order by dept desc nulls last fetch first 2 rows with ties
select distinct dept from emp order by dept
select distinct dept, active from emp order by dept, active
select distinct dept from emp order by pay
select distinct on (dept) dept, id, pay from emp order by dept, pay desc nulls last
select distinct on (dept) dept, id from emp order by dept nulls first, id desc
select distinct on (dept) id from emp order by id
select distinct on (1) dept, name from emp order by 1, 2
select distinct on (lower(kind)) kind, id from sale order by lower(kind), id
select distinct on (dept, active) dept, active, id from emp order by dept, active, id
select distinct kind || '.', length(kind) from sale order by 1
select id from sale where kind = 'ab' and qty = 3 order by id
select id from sale where kind = 'ab ' order by id limit 3
select id from sale where kind is null and note is null order by id
select id from sale where at < '2024-03-31 00:00:00+00' order by id
select id from sale where at between '2024-03-31 01:00:00 Europe/Zurich' and '2024-03-31 04:00:00+02' order by id
select id from sale where at = timestamptz '2024-03-30 22:47:00+00'
select id, note from sale where note > 'b' order by note, id limit 5
select count(*) from sale where amount <> all (select amount from sale where id < 10)
select * from pair where a = 2 order by b
select * from pair where a = 2 and b > 3
select * from pair where a in (1, 5) and b in (2, 4) order by a, b
select * from pair where (a, b) = (3, 4)
select * from pair where a = 1 or b = 1 order by a, b
select * from pair where a < b and v is null order by 1, 2
select * from pair where a = 1.0 and b = 2.0
select * from pair where a = 1.5
select * from pair where a = '3' and b = '1'
select * from pair where a = 99999999999
select * from pair where v = '1:3' and a = 1
select count(*) from pair where a > 2 and a > 3 and a < 5
select * from pair where a = null
select * from pair where a = 'x'
select * from item where price = 10.50
select sku, size from item where size < 0
select sku from item where price is null
select sku from item where price < 100 order by price desc
select sku from item where dims = '{1,2,3}'
select sku from item where dims < '{4,1}' order by sku
select sku from item where 7 = any (dims)
select sku from item where attrs @> '{"color": null}'
select sku from item where attrs -> 'color' = 'null'
select sku from item where attrs ->> 'color' is null order by 1
select sku from item where (attrs ->> 'w')::numeric > 1.5
select name from emp where id = (select min(boss) from emp)
select name from emp where 1
select name from emp where name
select name from emp where count(*) > 1
select nothing from emp
select emp.nothing from emp
select x.id from emp
select id from nowhere
select id from emp e where emp.id = 1
select id from emp, dept
select e.id, d.id from emp e join dept d on e.dept = d.id and d.site = 'Bern' order by 1
select e.name, d.name from emp e left join dept d on d.id = e.dept order by e.id
select d.name, e.name from emp e right join dept d on d.id = e.dept order by d.id, e.id
select d.name, e.name from emp e full join dept d on d.id = e.dept order by d.id nulls first, e.id
select a.name, b.name, c.name from emp a join emp b on a.boss = b.id join emp c on b.boss = c.id order by 1
select * from dept join (values (1, 'x'), (4, 'y'), (9, 'z')) v(id, w) using (id) order by id
select * from dept natural join (select 1 as id, 'q' as w) s
select * from dept left join (values (1, 'x'), (1, 'y')) v(id, w) using (id) order by id, w
select id, d.id, v.id from dept d full join (values (3), (7)) v(id) using (id) order by 1
select j.id, j.name from dept d join (select id from emp) e using (id) as j order by 1
select d.id from dept d join (values (1)) v(id) using (id) as j order by 1
select (d).id from dept d
select staff.* from staff order by id
select s.dept, s.pay from staff s where s.id < 4 order by s.pay, s.id
select e.*, 1 as one from (select id, name from emp where id < 3) e order by 1
select t.c1 from (select 1) as t(c1)
select t.c2 from (select 1) as t(c1)
select * from (select 1, 2) as t(a)
select * from (select 1, 2) as t(a, b, c)
select * from emp e join dept e on true
select id from emp join dept on true
select count(*) from emp cross join dept cross join pair
table dept order by id
values (3, 'c'), (1, 'a'), (2, null) order by 1
values (1, 2), (3)
values (1, 'a'), (null, 'b'), (2.5, 'c') order by 1
select * from (values (1::int2), (2::int8)) v(x) order by x
select column1, column2 from (values (1, 'x')) t
select where exists (select 1 from emp)
select
select all id from emp order by id limit 1
select "Name" from emp
select "name" as "Name", Id as ID from emp where id = 1
