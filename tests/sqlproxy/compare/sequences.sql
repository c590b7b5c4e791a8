-- Numbers of sequences for the rows of a query: when they are taken, how many, and what comes of it.
select setval('q', 1, false) ;; select nextval('q'), k from src order by k ;; select nextval('q'), currval('q'), lastval()
select setval('q', 1, false) ;; select k, nextval('q') from src order by v, k desc ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q') as n, k from src order by k limit 2 ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q') as n, k from src order by k limit 2 offset 2 ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q') as n, k from src order by v desc nulls last, k limit 2 offset 1 ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q') as n, k from src order by k limit 0 ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q') as n, k from src order by k offset 4 ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q') as n, k from src where v > 15 order by k ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q') as n, k from src where false order by k ;; select nextval('q')
select setval('q', 1, false) ;; select k, nextval('q') as n from src order by n desc ;; select nextval('q')
select setval('q', 1, false) ;; select k, nextval('q') as n from src order by nextval('q') desc limit 2 ;; select nextval('q')
select setval('q', 1, false) ;; select k, nextval('q') as n, nextval('q') * 10 as m from src order by 2 limit 3 ;; select nextval('q')
select setval('q', 1, false) ;; select k from src order by nextval('q') desc ;; select nextval('q')
select setval('q', 1, false) ;; select k from src order by -nextval('q') limit 1 ;; select nextval('q')
select setval('q', 1, false) ;; select 'x' || nextval('q') || '-' || k as name from src order by k
select setval('q', 1, false) ;; select nextval('q') + nextval('q') * 100, nextval('q') from src order by k
select setval('q', 1, false), setval('q5', 10, false) ;; select nextval('q'), nextval('q5'), nextval('q') from src order by k ;; select currval('q'), currval('q5'), lastval()
select setval('q', 1, false) ;; select case when v > 15 then nextval('q') else -k end as n, k from src order by k ;; select nextval('q')
select setval('q', 1, false) ;; select coalesce(v, nextval('q')) as n, k from src order by k ;; select nextval('q')
select setval('q', 1, false) ;; select v > 15 and nextval('q') > 0 as n, k from src order by k ;; select nextval('q')
select setval('q', 1, false) ;; select t || nextval('q') as n, k from src order by k ;; select nextval('q')
select setval('q', 1, false) ;; select nullif(nextval('q'), 2) as n, greatest(nextval('q'), k) as g from src order by k ;; select nextval('q')
select setval('q', 1, false) ;; select array[nextval('q'), k], nextval('q') in (2, 4) from src order by k
select setval('q', 1, false) ;; select distinct nextval('q') as n, t from src order by n ;; select nextval('q')
select setval('q', 1, false) ;; select distinct on (t) t, nextval('q') as n from src order by t, k ;; select nextval('q')
select setval('q', 1, false) ;; select distinct on (t) t, k, nextval('q') as n from src order by t, n desc ;; select nextval('q')
select setval('q', 1, false) ;; select count(*), nextval('q') as n, t from src group by t order by t ;; select nextval('q')
select setval('q', 1, false) ;; select sum(v), sum(v) * nextval('q') as n from src ;; select nextval('q')
select setval('q', 1, false) ;; select sum(nextval('q')), max(nextval('q')), count(*) from src ;; select nextval('q')
select setval('q', 1, false) ;; select t, count(nextval('q')) as n from src group by t having count(*) > 1 order by t ;; select nextval('q')
select setval('q', 1, false) ;; select array_agg(nextval('q') order by k desc) from src ;; select nextval('q')
select setval('q', 1, false) ;; select sum(nextval('q')) filter (where v is not null) from src ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q') / 2 as h, count(*) from src group by nextval('q') / 2 order by h ;; select nextval('q')
select setval('q', 1, false) ;; select k, row_number() over (order by v desc nulls last, k) as r, nextval('q') as n from src order by r ;; select nextval('q')
select setval('q', 1, false) ;; select k, sum(nextval('q')) over (order by k) as s from src order by k ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q') as n union all select nextval('q') order by n ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q') as n, k from src union all select -nextval('q'), k from src order by n ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q') as n from src union select nextval('q') from src order by n ;; select nextval('q')
select setval('q', 1, false) ;; (select nextval('q') as n from src) union all (select nextval('q') from src) limit 7 ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q') as n from src except select 2 order by n ;; select nextval('q')
select setval('q', 1, false) ;; select n, k from (select nextval('q') as n, k from src) x order by k desc ;; select nextval('q')
select setval('q', 1, false) ;; select n, n as again from (select nextval('q') as n from src order by k) x limit 2 ;; select nextval('q')
select setval('q', 1, false) ;; select k from (select nextval('q') as n, k from src) x order by k ;; select nextval('q')
select setval('q', 1, false) ;; select x.n, x.k, src.t from (select nextval('q') as n, k from src order by k) x join src using (k) order by k ;; select nextval('q')
select setval('q', 1, false) ;; select k, n from (select nextval('q') as n, k from src) x where k > 2 order by k ;; select nextval('q')
select setval('q', 1, false) ;; select k, n from (select nextval('q') as n, k from src) x where n > 2 order by k ;; select nextval('q')
select setval('q', 1, false) ;; with x as (select nextval('q') as n, k from src) select a.n = b.n as same, a.k from x a join x b using (k) order by k ;; select nextval('q')
select setval('q', 1, false) ;; with x as (select nextval('q') as n) select 1 as one ;; select nextval('q')
select setval('q', 1, false) ;; with x as (select nextval('q') as n), y as (select n + 100 as m from x) select n, m from x, y ;; select nextval('q')
select setval('q', 1, false) ;; select k, (select nextval('q')) as n from src order by k ;; select nextval('q')
select setval('q', 1, false) ;; select k from src where k = (select nextval('q')) order by k ;; select nextval('q')
select setval('q', 1, false) ;; select k from src where k in (select nextval('q') from src where k < 3) order by k ;; select nextval('q')
select setval('q', 1, false) ;; select k from src where exists (select nextval('q')) order by k ;; select nextval('q')
select setval('q', 1, false) ;; select k, nextval('q') as n, t from src join (values ('x', 1), ('z', 2)) v (t, w) using (t) order by k ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q') as n, generate_series(1, k) as g from src where k < 4 order by g, k ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q') from generate_series(1, 4) ;; select nextval('q')
select setval('q', 1, false) ;; select column1, nextval('q') from (values (1), (2), (3)) v order by column1 desc limit 1 offset 1 ;; select nextval('q')
select setval('q', 1, false) ;; values (nextval('q')), (nextval('q')) ;; select nextval('q')
select setval('q', 1, false) ;; select n, k from numbers order by k ;; select k from numbers order by k limit 2 ;; select nextval('q')
select setval('q', 1, false) ;; select nextval('q'), k from src order by k for update ;; select nextval('q')
-- one value after the other, from left to right
select setval('q', 5), nextval('q'), currval('q'), nextval('q'), setval('q', 50, false), currval('q'), nextval('q'), lastval()
select nextval('q5') is null, setval('q', 7), lastval() = currval('q5'), currval('q')
select setval('q', 3), setval('q', 1, false), nextval('q')
select setval('q', 1, false) ;; select setval('q', k * 10), nextval('q') from src order by k ;; select nextval('q')
select setval('q', max(k)) from src ;; select nextval('q')
select setval('q', coalesce(max(k), 1), max(k) is not null), nextval('q') from src where k > 100
select setval('few', 9)
select setval('q', 4), setval('few', 6), nextval('q') ;; select nextval('q')
select case when true then 1 else setval('q', 77) end, setval('q', 2) ;; select nextval('q')
-- the ends of sequences
select setval('few', 1, false) ;; select nextval('few') from src order by k
select setval('few', 2) ;; select nextval('few') from src order by k
select setval('few', 3) ;; select nextval('few') from src order by k limit 2
select setval('few', 3) ;; select case when k > 3 then nextval('few') end from src order by k
select setval('few', 5) ;; select case when k > 9 then nextval('few') end from src order by k
select setval('few', 5) ;; select nextval('few') from src where false
select setval('few', 5) ;; select nextval('few') where false
select setval('few', 4) ;; select nextval('few'), 1 / (k - 1) from src order by k
select setval('few', 5) ;; select 1 / (k - 1), nextval('few') from src order by k
select setval('ring', 1, false) ;; select nextval('ring'), k from src order by k ;; select nextval('ring')
select setval('down', -1, false) ;; select nextval('down'), k from src order by k
select setval('down', -1, false) ;; select nextval('down'), k from src order by k ;; select currval('down') ;; select nextval('down')
select setval('lots', 1, false) ;; select nextval('lots'), k from src order by k
-- changes
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (a, b) select nextval('q'), t from src order by k returning * ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (a, b) select v, t from src order by k returning id, c ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn select nextval('q') from src where k < 3 returning * ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (b) select 'n' || nextval('q5') from src order by v desc limit 2 returning * ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (b, c) select 'n' || nextval('q5'), 0 from src order by k limit 2 offset 1 returning * ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (a) select distinct nextval('q') / 2 from src order by 1 returning * ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; with x as (select nextval('q') as n, k from src) insert into drawn (id, a) select n, n from x order by k returning *
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn values (default, 1), (100, 2), (default, 3, 'x', 99), (101, 4, 'y', default) returning * ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (id, a) values (200, 1), (201, 2) returning c ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (a) values (nextval('q')), (nextval('q')) returning * ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (a) values (nextval('q')) returning * ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (c, b, a) values (nextval('q'), nextval('q'), nextval('q')) returning * ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (c, b, a) values (nextval('q'), nextval('q'), nextval('q')), (0, '', nextval('q')) returning * ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (a) values (1), (2) returning id, nextval('q'), nextval('q5') ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (a) select k from src where k < 3 returning id, nextval('q') as n, currval('q') ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (id, a) values (1, case when false then nextval('q') else 9 end) returning * ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (a, b) values (setval('q', 40), nextval('q')) returning * ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (a) values (1), (2) ;; insert into drawn (id, a) values (1, 7), (9, 8) on conflict (id) do update set a = nextval('q') returning * ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (id) values (1), (2) ;; insert into drawn (a) values (1), (2), (3) on conflict do nothing returning id, nextval('q5') ;; select nextval('q'), nextval('q5')
select setval('q', 1, false) ;; update src set v = nextval('q') ;; select * from src order by k ;; select nextval('q')
select setval('q', 1, false) ;; update src set v = nextval('q'), t = 'n' || nextval('q') where k > 3 returning * ;; select nextval('q')
select setval('q', 1, false) ;; update src set v = case when v > 15 then nextval('q') else v end returning k, v ;; select nextval('q')
select setval('q', 1, false) ;; update src set v = v + 1 where k < 3 returning k, v, nextval('q') ;; select nextval('q')
select setval('q', 1, false) ;; update src set v = nextval('q') where k < 3 returning k, v, nextval('q') ;; select nextval('q')
select setval('q', 1, false) ;; update src set v = nextval('q') from dept d where d.id = src.k and d.name = 'hr' returning src.k, v ;; select nextval('q')
select setval('q', 1, false) ;; update src set v = (select nextval('q')) returning k, v ;; select nextval('q')
select setval('q', 1, false) ;; update src set v = 0 where k = (select nextval('q')) returning k ;; select nextval('q')
select setval('q', 1, false) ;; delete from src where k < 3 returning k, nextval('q') ;; select nextval('q')
select setval('q', 1, false) ;; delete from src where k in (select nextval('q') from src where k < 3) returning k ;; select nextval('q')
select setval('q', 1, false) ;; with x as (update src set v = nextval('q') where k < 3 returning k, v) select * from x order by k ;; select nextval('q')
select setval('q', 1, false) ;; merge into src using (values (1), (9)) v (k) on src.k = v.k when matched then update set v = nextval('q') when not matched then insert values (v.k, nextval('q')) ;; select * from src where k in (1, 9) order by k ;; select nextval('q')
select setval('few', 3) ;; insert into src select nextval('few') + 100 from src
select setval('few', 3) ;; insert into src (k) values (nextval('few') + 100), (nextval('few') + 100), (nextval('few') + 100)
select setval('few', 3) ;; insert into src (k) values (nextval('few') + 100), (nextval('few') + 100) returning k
select setval('few', 3) ;; update src set v = nextval('few')
create table made as select nextval('ring') * 0 as zero, k from src ;; select * from made order by k
-- names
select setval('public.q', 1, false) ;; select nextval('public.q'), currval('q'), nextval('q'), currval('"q"') from src where k < 3 order by k
select nextval('nowhere') from src
select nextval('src') from src
select nextval(null) from src where k = 1
select nextval('q' || '5') is not null from src where k = 1
select setval('q', 44), nextval('q') ;; select lastval() from src
prepare p as select nextval('q') + $1 as n from src order by k limit $2 ;; select setval('q', 1, false) ;; execute p(100, 2) ;; execute p(200, 1) ;; select nextval('q')
-- found by a random comparison
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (id, a) values (1, nextval('q')), (2, nextval('q')), (1, 3) on conflict (id) do nothing returning id, c, lastval() ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (id, a) values (1, nextval('q')), (2, nextval('q5')), (1, 3) on conflict (id) do nothing returning id, nextval('q5') as z ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (id, a, c) values (75782, default, default), (default, 1, nextval('q')) returning * ;; select nextval('q'), nextval('q5')
select setval('q', 1, false), setval('q5', 10, false) ;; insert into drawn (id, a, c) values (default, nextval('q'), default), (default, default, default) returning id, c, lastval()
select nextval('q') is null, setval('q', 1) ;; insert into drawn (a, b) select currval('q'), t from src where k < 3 order by k returning *
select nextval('q') is null, setval('q', 1) ;; select k, nullif(nextval('ring'), nextval('q')) is null as c0, currval('q') as c1, nextval('q') as c2 from src order by 2, k
select nextval('q') is null, setval('q', 1) ;; select k, currval('q') as c0, nextval('q') as c1 from src order by 2, k
select nextval('q') is null, setval('q', 1) ;; select sum(lastval()) as a, max(nextval('q')) as b from src
select nextval('q') is null, setval('q', 1) ;; select k, nextval('q') as n from src order by 2 limit 0 ;; select nextval('q')
select setval('q', 1, false) ;; select k, coalesce(v, (select nextval('q'))) as c0, nextval('q') as c1 from src order by k ;; select nextval('q')
select setval('q', 1, false) ;; select k, (select nextval('q')) as c0 from src where false ;; select nextval('q')
select setval('q', 1, false) ;; select k, nullif(null::int, nextval('q')) as c0 from src order by k ;; select nextval('q')
select setval('ring', 1, false) ;; select k, nextval('ring') as a, nextval('ring') as b from src order by k ;; select nextval('ring')
select setval('q', 1, false) ;; select k, nextval('q') as c0, (select nextval('q')) as c1 from src where v > 15 order by v nulls first, k
-- what cannot be told apart row by row
select k from src where nextval('q') > 0
select s.k from src s join dept d on d.id = nextval('q')
update src set v = 1 where nextval('q') > 0
delete from src where nextval('q') > 0
select k, (select nextval('q') where k > 0) from src
select unnest(array[nextval('q'), nextval('q')]) from src
with recursive r as (select nextval('q') as n union all select nextval('q') from r where n < 3) select * from r
