-- window functions and frames
select id, row_number() over (order by pay desc nulls last, id) from emp order by id
select id, rank() over (order by pay), dense_rank() over (order by pay) from emp order by id
select id, rank() over (partition by dept order by pay desc) from emp order by id
select id, sum(amount) over (partition by kind order by at) from sale where id < 12 order by id
select id, sum(qty) over (order by id rows between 2 preceding and current row) from sale where id < 10 order by id
select id, sum(qty) over (order by id rows between current row and unbounded following) from sale where id < 10 order by id
select id, sum(qty) over (order by id rows between 3 following and 4 following) from sale where id < 10 order by id
select id, sum(qty) over (order by id rows between 4 preceding and 3 preceding) from sale where id < 10 order by id
select id, count(*) over (order by qty range between 1 preceding and 1 following) from sale where id < 10 order by id
select id, count(*) over (order by qty desc range between 1 preceding and current row) from sale where id < 10 order by id
select id, count(*) over (order by amount range between 20 preceding and 20.5 following) from sale where id < 10 order by id
select id, count(*) over (order by at range between interval '1 hour' preceding and interval '1 hour' following) from sale where id < 10 order by id
select id, count(*) over (order by hired range between interval '1 year' preceding and current row) from emp order by id
select id, count(*) over (order by qty groups between 1 preceding and 1 following) from sale where id < 10 order by id
select id, count(*) over (order by qty groups between unbounded preceding and 1 preceding) from sale where id < 10 order by id
select id, sum(id) over (order by qty groups current row) from sale where id < 10 order by id
select id, sum(id) over (order by qty rows between unbounded preceding and unbounded following exclude current row) from sale where id < 10 order by id
select id, sum(id) over (order by qty range between unbounded preceding and unbounded following exclude group) from sale where id < 10 order by id
select id, sum(id) over (order by qty groups between unbounded preceding and unbounded following exclude ties) from sale where id < 10 order by id
select id, sum(id) over (order by qty rows between unbounded preceding and current row exclude no others) from sale where id < 5 order by id
select id, first_value(name) over w, last_value(name) over w, nth_value(name, 2) over w from emp window w as (partition by dept order by id) order by id
select id, last_value(name) over (partition by dept order by id rows between unbounded preceding and unbounded following) from emp order by id
select id, lag(name) over w, lead(name) over w, lag(name, 2, 'none') over w from emp window w as (order by id) order by id
select id, lag(pay, 1, 0) over (order by id), lead(pay, -1) over (order by id) from emp order by id
select id, lag(id, dept) over (order by id) from emp order by id
select id, ntile(3) over (order by id), ntile(2) over (partition by dept order by id) from emp order by id
select id, ntile(0) over (order by id) from emp
select id, percent_rank() over (order by dept), cume_dist() over (order by dept) from emp order by id
select id, avg(pay) over (partition by dept), pay - avg(pay) over (partition by dept) from emp order by id
select id, max(name) over (order by id rows 1 preceding) from emp order by id
select id, min(hired) over (order by id rows between 1 following and 2 following) from emp order by id
select id, count(pay) over (order by id), count(*) over () from emp order by id
select id, array_agg(id) over (order by id rows between 1 preceding and 1 following) from emp order by id
select id, string_agg(name, ',') over (partition by dept order by id) from emp order by id
select id, bool_and(active) over (order by id) from emp order by id
select id, json_agg(id) over (order by id) from emp where id < 4 order by id
select id, stddev(pay) over (partition by dept) from emp order by id
select id, sum(pay) filter (where active) over (order by id) from emp order by id
select id, row_number() over () from (select id from emp order by id desc) q order by id desc
select id, sum(id) over w1, sum(id) over w2 from emp window w1 as (partition by dept), w2 as (w1 order by id) order by id
select id, sum(id) over (w order by id) from emp window w as (partition by dept) order by id
select id, sum(id) over (w partition by active) from emp window w as (partition by dept)
select id, sum(id) over nope from emp
select id from emp where row_number() over () = 1
select id from emp group by row_number() over ()
select sum(row_number() over ()) from emp
select row_number() over (order by row_number() over ()) from emp
select id, rank() from emp
select id, length(name) over () from emp
select id, count(distinct dept) over () from emp
select id, row_number() over (order by id) from emp order by row_number() over (order by id desc)
select id, rank() over (order by pay desc nulls last) as r from emp order by r, id limit 3
select * from (select id, dept, row_number() over (partition by dept order by pay desc nulls last) as r from emp) q where r = 1 order by id
select distinct dept, count(*) over (partition by dept) from emp order by 1
select dept, sum(count(*)) over (order by dept) from emp group by dept order by dept
select dept, rank() over (order by avg(pay) desc nulls last) from emp group by dept order by dept
select dept, first_value(max(pay)) over (order by dept) from emp group by dept order by dept
select id, sum(qty) over (order by id rows between -1 preceding and current row) from sale
select id, sum(qty) over (order by id rows between unbounded following and current row) from sale
select id, sum(qty) over (rows between current row and 1 preceding) from sale
select id, sum(qty) over (range between 1 preceding and current row) from sale
select id, sum(qty) over (order by note range between 1 preceding and current row) from sale
select id, sum(qty) over (groups 1 preceding) from sale
select id, sum(qty) over (order by id rows null preceding) from sale
select id, nth_value(id, 0) over (order by id) from emp
select id, lead(id, 1, 'x') over (order by id) from emp
select id, lag(id, 1, 2.5) over (order by id) from emp order by id
select id, first_value(id) ignore nulls over (order by id) from emp
select id, sum(f8) over (order by id) from num where id in (1, 4, 6, 7) order by id
select id, sum(n2) over (order by id rows 1 preceding) from num order by id
select id, avg(i4) over (order by id rows 1 preceding) from num order by id
select id, max(at) over (order by id) - at from sale where id < 5 order by id
select extract(hour from at), sum(sum(amount)) over (order by extract(hour from at)) from sale group by 1 order by 1 limit 4
select a, b, sum(b) over (partition by a order by b) from pair where a < 3 order by a, b
select a, count(*) over (partition by a, v is null) from pair where a < 3 order by a, b
select e.id, s.id, row_number() over (partition by e.id order by s.at desc) from emp e join sale s on s.emp = e.id where e.id < 3 order by 1, 3
-- functions that return sets in window definitions
select k, row_number() over (order by generate_series(1, 2), k) as r from src order by r
select k, generate_series(1, 2) as g, row_number() over (order by k desc, generate_series(1, 2)) as r from src order by r
select k, count(*) over (partition by generate_series(1, 2)) as c from src order by k
select k, g, sum(k) over w from (select k, generate_series(1, k) as g from src) x window w as (partition by g) order by k, g
select k, sum(k) over w as s from src where k < 4 window w as (partition by generate_series(1, k)) order by k, s
select k, sum(generate_series(1, 2)) over () from src order by k
select t, count(*), row_number() over (order by generate_series(1, 2), t) as r from src group by t order by r
select k, first_value(k) over (order by unnest(array[3, 1]) desc, k) as f from src where k < 3 order by k, f
-- RANGE near the ends of a type
select i4, sum(1) over (order by i4 desc range between 100 preceding and current row) from num where i4 is not null order by i4 desc
select i2, i8, count(*) over (order by i2 range between 5 preceding and 5 following), count(*) over (order by i8 desc range between 5 preceding and 9223372036854775807 following) from num where i2 is not null order by id
select n, count(*) over (order by n range between 1 preceding and 1 following) from num where n < 1e20 order by n
select n2, count(*) over (order by n2 range between 99999.999 preceding and 1 following) from num where n2 is not null order by n2
select d, count(*) over (order by d range between '10 years' preceding and '1 day' following) from (values (date '9999-12-31'), ('9999-12-30'), ('0001-01-02')) v(d) order by d
set timezone='America/New_York' ;; select id, count(*) over (order by x range between '1 day' preceding and '1 day' following) from instants order by id
set timezone='America/New_York' ;; select id, count(*) over (order by x range between '1 month' preceding and current row) from instants order by id
set timezone='America/New_York' ;; select g, count(*) over (order by g range between '1 day' preceding and current row), count(*) over (order by g desc range between '1 day' preceding and '1 day' following), count(*) over (order by g range between '1 day 01:00' following and '2 days' following) from generate_series(timestamptz '2024-11-02 04:00+00', timestamptz '2024-11-05 08:00+00', interval '1 hour') g order by g
set timezone='Europe/Berlin' ;; select at, sum(qty) over (order by at range between '1 day' preceding and current row), first_value(id) over (partition by kind order by at desc range between '6 hours' preceding and '1 day' following) from sale order by id
set timezone='Europe/Berlin' ;; select at, array_agg(id) over (order by at range between '1 mon' preceding and '-1 day' following) from sale order by id
set timezone='Europe/Berlin' ;; select id, count(*) over (order by x desc nulls last range between '3 hours' preceding and '1 day' following exclude current row) from instants order by id
