-- What binds how tightly, and what guards, wherever DuckDB runs a query: the text that it reads keeps the tree
select e.id, not (e.active) is null, (not e.active) is null, not (e.active is null) from emp e join dept d on d.id = e.dept order by e.id
select e.id, (not e.active) is true, (not e.active) is not false, not e.active is distinct from true from emp e join dept d on d.id = e.dept order by e.id
select e.id, (not e.active) is distinct from (e.pay > 100), (not e.active) = (e.pay > 100) from emp e left join dept d on d.id = e.dept order by e.id
select e.id from emp e join dept d on (not e.active) is distinct from d.id > 2 order by e.id, d.id
select e.id, d.id from emp e left join dept d on (not (d.id = e.dept and e.active)) is unknown order by 1, 2
select d.id, (not bool_and(e.active)) is null, (not bool_or(e.active)) in (true), (not every(e.active)) is not unknown from dept d left join emp e on e.dept = d.id group by d.id order by 1
select d.id from dept d left join emp e on e.dept = d.id group by d.id having (not bool_and(e.active)) is not null order by 1
select d.id from dept d left join emp e on e.dept = d.id group by d.id having not bool_and(e.active) is not null order by 1
select e.id, case (not e.active) when true then 'a' when false then 'b' else 'c' end, case when (not e.active) is null then 1 else 2 end from emp e join dept d on d.id = e.dept order by 1
select e.id, case when not e.active is null then 1 else 2 end + 1, - case when e.active then 1 else 2 end from emp e join dept d on d.id = e.dept order by 1
select count(*) filter (where (not e.active) is not true), count(*) filter (where not e.active is not true) from emp e join dept d on true
select e.id, (e.id not in (select boss from emp where boss is not null)) is not false, not (e.id in (select boss from emp)) is null from emp e order by 1
select e.id, (not exists (select from sale s where s.emp = e.id)) is distinct from e.active, not (exists (select from sale s where s.emp = e.id)) = e.active from emp e order by 1
select e.id, (e.pay not between 100 and 6000) is unknown, not (e.pay between 100 and 6000 is unknown) from emp e join dept d on d.id = e.dept order by 1
select e.id, (e.name like 'A%') is distinct from (e.name not like 'B%'), (e.name not like 'A%') = (e.name ilike 'c%') from emp e join dept d on d.id = e.dept order by 1
select e.id, - (e.id ^ 2), (- e.id) ^ 2, - e.id ^ 2, 2 ^ - e.id, 2 - - e.id, (2 - 3) - e.id, 2 - (3 - e.id) from emp e join dept d on d.id = e.dept order by 1
select e.id, e.id - (d.id - e.id), e.id / (d.id * 2), e.id % (d.id + 1) * 2, e.id % ((d.id + 1) * 2), (e.id * 7 / d.id) * d.id, e.id * (7 / d.id) from emp e join dept d on d.id = e.dept order by 1
select e.id, 2 ^ 3 ^ (e.id - 1), 2 ^ (3 ^ (e.id - 1)), @ (e.id - 3), |/ (e.id * 4), (|/ 4) * e.id, ~ e.id & 3, ~ (e.id & 3) from emp e join dept d on d.id = e.dept where e.id < 4 order by 1
select e.id, e.id & d.id | 4, e.id & (d.id | 4), e.id # d.id # 3, e.id << 1 + d.id, (e.id << 1) + d.id, e.id + 1 << d.id from emp e join dept d on d.id = e.dept order by 1
select e.id, e.name || d.id + 1, (e.name || d.id) || '1' = e.name, e.name || (d.id = 1), e.name || d.name like 'A%' from emp e join dept d on d.id = e.dept order by 1
select e.id, (e.id = 1) = (d.id = 1), (e.id < 2) < (d.id < 2), (e.id is null) is null, (e.id = d.id) is not true from emp e join dept d on d.id = e.dept order by 1
select e.id from emp e join dept d on d.id = e.dept where not (e.id = 1 or e.id = 2) and not e.active is false order by 1
select e.id from emp e join dept d on d.id = e.dept where (not e.id = 1 or e.id = 1) and (e.active or not e.active) is null order by 1
select e.id, (e.active and e.pay > 5000) is null, e.active and e.pay > 5000 is null, (e.active or e.pay > 5000) is distinct from null from emp e join dept d on d.id = e.dept order by 1
select e.id, (e.id, d.id) < (3, 1), not (e.id, d.id) = (1, 1), (not (e.id, e.pay) = (5, 1)) is null, (e.id, e.pay) is null, not (e.id, e.pay) is null, (e.id, e.pay) is not null from emp e join dept d on d.id = e.dept order by 1
select e.id, (e.id in (1, 2, null)) is null, not e.id in (1, 2, null), (e.id not in (1, 2, null)) is not true from emp e join dept d on d.id = e.dept order by 1
select e.id, e.id::text || e.pay::int, (e.id + 1)::text, -e.id::text::int, (-e.id)::text, - (e.pay::int) from emp e join dept d on d.id = e.dept order by 1
select e.id, (e.info -> 'age')::text, e.info -> 'home' ->> 'city', (e.info -> 'home') ? 'city', e.info ->> 'age' = '36', (e.info ->> 'age') is null from emp e join dept d on d.id = e.dept order by 1
select e.id, e.tags[1] || 'x', (e.tags || array['z'])[2], (array[e.id, d.id])[1] + 1, array[e.id] || d.id, e.tags @> array['a'] = true, (not e.tags @> array['a']) is null from emp e join dept d on d.id = e.dept order by 1
select e.id, (e.name collate "C") < d.name, (e.name || 'x') collate "C" = 'Adax' from emp e join dept d on d.id = e.dept order by 1
select e.id, e.hired + 1 - d.id, e.hired + (1 - d.id), e.hired - (date '2019-01-01' + d.id), (e.hired - interval '1 month') - interval '1 month', e.hired - (interval '1 month' - interval '1 day') from emp e join dept d on d.id = e.dept order by 1
select e.id, e.left_at at time zone 'UTC' at time zone 'Asia/Tokyo', (e.left_at + interval '1 day') at time zone 'Asia/Tokyo', e.left_at at time zone ('Asia/' || 'Tokyo') from emp e join dept d on d.id = e.dept order by 1
select e.id, (select not e.active) is null, (select (not e.active) is null), (not (select e.active)) is null from emp e join dept d on d.id = e.dept order by 1
select e.id, not (not e.active), not not (e.active is null), not (not (not e.active)) is null, (not not e.active) is null from emp e join dept d on d.id = e.dept order by 1
select x.v, x.b from (select not (e.active) as v, (not e.active) is null as b from emp e join dept d on d.id = e.dept) x where (not x.v) is distinct from x.b order by 1, 2
select coalesce(not e.active, e.id = 5) is null, nullif(not e.active, false) is null, (not nullif(e.active, true)) is null, greatest(not e.active, false) is true from emp e join dept d on d.id = e.dept order by e.id
select e.id from emp e join dept d on d.id = e.dept order by (not e.active) is null desc, not e.active desc nulls last, - e.id
select (not e.active) is null, not (e.active is null), count(*) from emp e join dept d on d.id = e.dept group by (not e.active) is null, not (e.active is null) order by 1, 2
select e.id, (not e.active) is null, row_number() over (partition by (not e.active) is null order by e.id), count(*) filter (where (not e.active) is not null) over () from emp e join dept d on d.id = e.dept order by 1
select e.id, 'a' = any(e.tags) is null, ('a' = any(e.tags)) is null, (not 'a' = any(e.tags)) is null, not 'a' = all(e.tags) from emp e join dept d on d.id = e.dept order by 1
select e.id, (not e.id = any(select boss from emp)) is null, not (e.id = all(select boss from emp where boss = e.id)), (e.id <> all(select boss from emp)) is not false from emp e order by 1
select e.id, e.name similar to '(A|B)%' = true, (e.name not similar to '(A|B)%') is true, e.name ~ '^A' = e.active, (not e.name ~* '^a') = e.active, e.name !~ 'A' is null from emp e join dept d on d.id = e.dept order by 1
select e.id, e.pay between symmetric 6000 and 100, e.pay not between symmetric 6000 and 100, (e.pay between 1 and 2) = (e.pay between symmetric 2 and 1), e.pay between 1 + 1 and 2 * 3000 from emp e join dept d on d.id = e.dept order by 1
select e.id, e.pay between d.id and d.id + 6000 and e.active, (e.pay > 5) between false and (e.active is null) from emp e join dept d on d.id = e.dept order by 1
select e.id, (not e.active) between false and true, not (e.active between false and true), (e.active is null) in (true, e.active), (not e.active) in (true) from emp e join dept d on d.id = e.dept order by 1
select e.id, e.name is not null = e.active, (e.name is null) is distinct from e.active, e.rate is distinct from 'NaN', not e.rate is distinct from 'NaN' from emp e join dept d on d.id = e.dept order by 1
select e.id, row(e.id, not e.active) is null, row(not e.active) is not null, (row(e.id, e.active) = row(1, true)) is null from emp e join dept d on d.id = e.dept order by 1
select e.id, (not (e.dept, e.active) in (select d.id, true from dept d)) is null, (e.dept, e.active) not in ((1, true), (2, null)) from emp e order by 1
select sum(case when (not e.active) is null then 1 else 0 end), sum((not (e.active is null))::int), avg(- e.id), max(- (- e.id)), string_agg(case when not e.active then 'n' else 'y' end, '' order by e.id) from emp e join dept d on d.id = e.dept
with x as materialized (select e.id, e.active from emp e join dept d on d.id = e.dept) select a.id, b.id from x a join x b on (not (a.active = b.active)) is null and not (a.id > b.id) order by 1, 2
select a.id from emp a full join dept d on (not (a.dept = d.id)) = false order by 1, d.id
select e.id, not e.active is not distinct from null, (not e.active) is not distinct from null, not (e.active is not distinct from null) from emp e cross join dept d where d.id = 1 order by 1
update emp set active = not (active is null) from dept d where d.id = emp.dept and (not emp.active) is not true returning emp.id, active
delete from emp using dept d where d.id = emp.dept and (not emp.active) is null returning emp.id
select e.id, e.active::int::text || '!', (not e.active)::text, not e.active::text::bool, (not e.active)::int + 1 from emp e join dept d on d.id = e.dept order by 1
select e.id, exists (select from dept d where (not (d.id = e.dept)) is false), not exists (select from dept d where d.id = e.dept) is true from emp e order by 1
select e.id, -1 ^ e.id::int, (-1) ^ e.id, -(-1), - - e.id, -e.pay ^ 2, +(-e.id), 5 !=-e.id from emp e join dept d on d.id = e.dept order by 1
select e.id, sum(case when e.active then 1 end) over w, first_value(e.name) over (w rows unbounded preceding) from emp e join dept d on d.id = e.dept window w as (partition by d.id order by e.id) order by 1
select e.id from emp e join dept d on d.id = e.dept group by e.id having not (count(*) > 1 or e.id = 2) order by 1
select not (1 = 1 and null), not (null or false) is true, not null is null, (not null) is null, not (not null is null)
select a.id, (a.active and not b.active) is null, not (a.active and b.active) is false, not (a.active is not distinct from b.active) from emp a join emp b on a.boss = b.id order by 1
select a.id from emp a join emp b on (a.active and not b.active is null) is not false and a.boss = b.id order by 1
select id, case active when true then 1 when false then 2 when null then 3 else 4 end, case when not active then 1 when active is null then 2 end from emp order by id
select e.id, case d.name when 'eng' then case when not e.active then 'x' else 'y' end else coalesce(d.site, 'none') end from emp e left join dept d on d.id = e.dept order by 1
select d.id, (select not bool_or(active) from emp e where e.dept = d.id) is null, (select count(*) from emp e where not (e.dept = d.id) is true) from dept d order by 1
select d.id from dept d where not exists (select from emp e where e.dept = d.id and not (e.active) is true) is false order by 1
select d.id from dept d where (not d.id in (select dept from emp)) is null or (d.id not in (select dept from emp where dept is not null)) order by 1
select e.id, (e.pay > all (select pay from emp where dept = e.dept and id <> e.id)) is null, not (e.pay > any (select pay from emp where dept = e.dept and id <> e.id)) from emp e order by 1
select e.id, (e.name like any (array['A%', null])) is null, not (e.name like all (array['%a%', '%d%'])), e.name not like all (array['A%', 'B%']) from emp e join dept d on d.id = e.dept order by 1
select id, -id % 3, -(id % 3), id / -2, -id / 2, (-id) / 2, id - -1, - - id, id * -1 ^ 2, 2 ^ -1 from emp order by id
select e.id, -e.id % 3, e.id / -2, -e.id / 2, e.pay / 3, -e.pay % 7, e.pay / e.id, (e.pay::float8 / 3)::numeric(10,3), e.id::numeric / 3, 1.0 / e.id from emp e join dept d on d.id = e.dept order by 1
select e.id & 1 = 1, e.id | 8 > 8, e.id << 2 >> 1, ~e.id, -~e.id, (e.id # 5) = 4 from emp e join dept d on d.id = e.dept order by e.id
select e.name || ' ' || e.pay || e.active || e.hired, e.name || null, concat(e.name, null, e.pay, e.active, e.hired), e.rate || '' from emp e join dept d on d.id = e.dept order by e.id
select e.id, e.rate, e.rate > 1, e.rate = 'NaN', e.rate < 'Infinity', -e.rate, e.rate + 1, e.rate * 0, abs(e.rate), e.rate::numeric, round(e.rate), e.rate::text from emp e join dept d on d.id = e.dept order by 1
select e.rate, count(*) from emp e join dept d on true group by e.rate order by 1
select max(e.rate), min(e.rate), sum(e.rate), avg(e.rate), max(e.rate) filter (where e.rate <> 'NaN') from emp e join dept d on d.id = e.dept
select f.m, f.d, f.m > f.d, f.m = any(f.ms), f.m in ('ok', 'sad'), greatest(f.m, f.d), f.m::text || 'x', f.m between 'sad' and 'ok' from felt f join dept d on d.id = 1 order by f.m, f.id
select e.tags, e.tags[1], e.tags[1:2], e.tags || 'x'::text, array_length(e.tags, 1), cardinality(e.tags), array_to_string(e.tags, ',', '*'), 'a' = any(e.tags), e.tags && array['b'], array_position(e.tags, 'b'), array_remove(e.tags, 'a'), e.tags = '{b}' from emp e join dept d on d.id = e.dept order by e.id
select e.info, e.info -> 'lang' -> 0, e.info #>> '{home,city}', e.info @> '{"age": 36}', e.info ? 'age', jsonb_typeof(e.info), e.info - 'age', e.info = '[1,2,{"x":3}]', e.info -> -1 from emp e join dept d on d.id = e.dept order by e.id
select a.id, a.i4 + b.i4, a.i8 - b.i8, a.i2 * b.i2, a.n * b.n2, a.f8 / nullif(b.f8, 0) from num a join num b on b.id = a.id where a.id not in (2, 3) order by 1
select a.i4 + b.i4 from num a join num b on b.id = a.id where a.id = 3
select a.i2 * b.i2 from num a join num b on b.id = a.id where a.id = 3
select -a.i8 from num a join num b on b.id = a.id where a.id = 2
select a.i2::int2 + 1::int2 from num a join num b on b.id = a.id where a.id = 3
select abs(a.i4) from num a join num b on b.id = a.id where a.id = 2
select a.f8::int4 from num a join num b on b.id = a.id where a.id = 3
select a.i4 / 0.0 from num a join num b on b.id = a.id where a.id = 1
select (a.n)::int from num a join num b on b.id = a.id where a.id = 3
select a.f8::float4 from num a join num b on b.id = a.id where a.id = 3
select (a.n * 2.5)::int, (a.f8 * 2.5)::int, round(a.n, 1), round(a.f8), (a.n2)::int2, trunc(a.n2, 1), a.n::numeric(6, 2) from num a join num b on b.id = a.id where a.id in (1, 4, 6, 7) order by a.id
select 7 / 2, -7 / 2, 7 % -3, -7 % 3, 7.0 / 2, 2 ^ 0.5, 2 ** 3
select d.name, e.* from dept d left join lateral (select id, pay from emp where dept = d.id order by pay desc nulls last limit 1) e on true order by 1
select d.name, x.n from dept d cross join lateral (values (d.id), (d.id * 2)) x(n) order by 1, 2
select * from dept d natural join (select id, 'q' as q from dept where id < 3) x order by id
select * from (select 1 as a) x full join (select 2 as a) y using (a) order by 1
select * from pair p join pair q using (a, b) where p.a = 1 order by b
select count(*) from emp e left join dept d on d.id = e.dept and d.name <> 'eng' where d.id is null
select id from emp except all select boss from emp where boss is not null order by 1
select boss from emp intersect all select id from emp order by 1
select dept from emp union select null order by 1 nulls first
select distinct on (dept) dept, id, pay from emp order by dept nulls first, pay desc nulls last, id
select count(*), sum(pay) from emp where false having count(*) = 0
select 1 having false
select string_agg(name, ',' order by pay desc nulls last, name) from emp where pay > any (select budget / 20 from dept)
select id, ntile(3) over (order by id), percent_rank() over (order by dept), cume_dist() over (order by dept), lead(name, 2, 'none') over (order by id), nth_value(name, 2) over (order by id rows between unbounded preceding and unbounded following) from emp order by id
select id, sum(pay) over (order by hired nulls first rows between 1 preceding and 1 following), dense_rank() over (partition by dept order by pay desc) from emp order by id
select e.id, d.name from emp e join dept d on d.id = e.dept where (e.id, d.name) > (2, 'a') order by e.id limit 2 offset 1
select e.id from emp e join dept d on d.id = e.dept order by e.pay desc nulls last fetch first 2 rows with ties
select substring(e.name from 2 for 1), position('a' in e.name), overlay(e.name placing 'ZZ' from 2 for 1), trim(both 'A' from e.name), lpad(e.name, 5, '*'), split_part(e.name, 'a', 1), reverse(e.name), translate(e.name, 'a', 'z'), regexp_replace(e.name, '[aeiou]', '#', 'g'), left(e.name, -1) from emp e join dept d on d.id = e.dept order by e.id
select e.name like '_d%', e.name similar to '%(d|b)%', regexp_match(e.name, '(.)d'), e.name ~ '^.{3}$', substring(e.name, '.b'), starts_with(e.name, 'A'), strpos(e.name, 'd'), e.name < 'B', e.name collate "C" < 'a' from emp e join dept d on d.id = e.dept order by e.id
