-- value op ANY | ALL (array): every operator, arrays of literals, of queries, of rows, with NULLs, empty ones and NULL
select id, i4 = any ('{1,7,100,null}'::int[]) as r from num order by id
select id, i4 = all ('{1,7,100,null}'::int[]) as r from num order by id
select id, i4 <> any ('{1,7,100,null}'::int[]) as r from num order by id
select id, i4 <> all ('{1,7,100,null}'::int[]) as r from num order by id
select id, i4 < any ('{1,7,100,null}'::int[]) as r from num order by id
select id, i4 < all ('{1,7,100,null}'::int[]) as r from num order by id
select id, i4 <= any ('{1,7,100,null}'::int[]) as r from num order by id
select id, i4 <= all ('{1,7,100,null}'::int[]) as r from num order by id
select id, i4 > any ('{1,7,100,null}'::int[]) as r from num order by id
select id, i4 > all ('{1,7,100,null}'::int[]) as r from num order by id
select id, i4 >= any ('{1,7,100,null}'::int[]) as r from num order by id
select id, i4 >= all ('{1,7,100,null}'::int[]) as r from num order by id
select id, i4 = any ('{}'::int[]) as r from num order by id
select id, i4 = all ('{}'::int[]) as r from num order by id
select id, i4 <> any ('{}'::int[]) as r from num order by id
select id, i4 <> all ('{}'::int[]) as r from num order by id
select id, i4 < any ('{}'::int[]) as r from num order by id
select id, i4 < all ('{}'::int[]) as r from num order by id
select id, i4 <= any ('{}'::int[]) as r from num order by id
select id, i4 <= all ('{}'::int[]) as r from num order by id
select id, i4 > any ('{}'::int[]) as r from num order by id
select id, i4 > all ('{}'::int[]) as r from num order by id
select id, i4 >= any ('{}'::int[]) as r from num order by id
select id, i4 >= all ('{}'::int[]) as r from num order by id
select id, i4 = any (null::int[]) as r from num order by id
select id, i4 = all (null::int[]) as r from num order by id
select id, i4 <> any (null::int[]) as r from num order by id
select id, i4 <> all (null::int[]) as r from num order by id
select id, i4 < any (null::int[]) as r from num order by id
select id, i4 < all (null::int[]) as r from num order by id
select id, i4 <= any (null::int[]) as r from num order by id
select id, i4 <= all (null::int[]) as r from num order by id
select id, i4 > any (null::int[]) as r from num order by id
select id, i4 > all (null::int[]) as r from num order by id
select id, i4 >= any (null::int[]) as r from num order by id
select id, i4 >= all (null::int[]) as r from num order by id
select id, i4 = any ('{7}'::int8[]) as r from num order by id
select id, i4 = all ('{7}'::int8[]) as r from num order by id
select id, i4 <> any ('{7}'::int8[]) as r from num order by id
select id, i4 <> all ('{7}'::int8[]) as r from num order by id
select id, i4 < any ('{7}'::int8[]) as r from num order by id
select id, i4 < all ('{7}'::int8[]) as r from num order by id
select id, i4 <= any ('{7}'::int8[]) as r from num order by id
select id, i4 <= all ('{7}'::int8[]) as r from num order by id
select id, i4 > any ('{7}'::int8[]) as r from num order by id
select id, i4 > all ('{7}'::int8[]) as r from num order by id
select id, i4 >= any ('{7}'::int8[]) as r from num order by id
select id, i4 >= all ('{7}'::int8[]) as r from num order by id
select id, i4 = any (array(select i4 from num where id < 8)) as r from num order by id
select id, i4 = all (array(select i4 from num where id < 8)) as r from num order by id
select id, i4 <> any (array(select i4 from num where id < 8)) as r from num order by id
select id, i4 <> all (array(select i4 from num where id < 8)) as r from num order by id
select id, i4 < any (array(select i4 from num where id < 8)) as r from num order by id
select id, i4 < all (array(select i4 from num where id < 8)) as r from num order by id
select id, i4 <= any (array(select i4 from num where id < 8)) as r from num order by id
select id, i4 <= all (array(select i4 from num where id < 8)) as r from num order by id
select id, i4 > any (array(select i4 from num where id < 8)) as r from num order by id
select id, i4 > all (array(select i4 from num where id < 8)) as r from num order by id
select id, i4 >= any (array(select i4 from num where id < 8)) as r from num order by id
select id, i4 >= all (array(select i4 from num where id < 8)) as r from num order by id
select id, i4 = any (array(select i4 from num where false)) as r from num order by id
select id, i4 = all (array(select i4 from num where false)) as r from num order by id
select id, i4 <> any (array(select i4 from num where false)) as r from num order by id
select id, i4 <> all (array(select i4 from num where false)) as r from num order by id
select id, i4 < any (array(select i4 from num where false)) as r from num order by id
select id, i4 < all (array(select i4 from num where false)) as r from num order by id
select id, i4 <= any (array(select i4 from num where false)) as r from num order by id
select id, i4 <= all (array(select i4 from num where false)) as r from num order by id
select id, i4 > any (array(select i4 from num where false)) as r from num order by id
select id, i4 > all (array(select i4 from num where false)) as r from num order by id
select id, i4 >= any (array(select i4 from num where false)) as r from num order by id
select id, i4 >= all (array(select i4 from num where false)) as r from num order by id
select id, i4 = any ((select array_agg(i4) from num where i4 > 0)) as r from num order by id
select id, i4 = all ((select array_agg(i4) from num where i4 > 0)) as r from num order by id
select id, i4 <> any ((select array_agg(i4) from num where i4 > 0)) as r from num order by id
select id, i4 <> all ((select array_agg(i4) from num where i4 > 0)) as r from num order by id
select id, i4 < any ((select array_agg(i4) from num where i4 > 0)) as r from num order by id
select id, i4 < all ((select array_agg(i4) from num where i4 > 0)) as r from num order by id
select id, i4 <= any ((select array_agg(i4) from num where i4 > 0)) as r from num order by id
select id, i4 <= all ((select array_agg(i4) from num where i4 > 0)) as r from num order by id
select id, i4 > any ((select array_agg(i4) from num where i4 > 0)) as r from num order by id
select id, i4 > all ((select array_agg(i4) from num where i4 > 0)) as r from num order by id
select id, i4 >= any ((select array_agg(i4) from num where i4 > 0)) as r from num order by id
select id, i4 >= all ((select array_agg(i4) from num where i4 > 0)) as r from num order by id
select id, i4 = any ((select array_agg(i4) from num where false)) as r from num order by id
select id, i4 = all ((select array_agg(i4) from num where false)) as r from num order by id
select id, i4 <> any ((select array_agg(i4) from num where false)) as r from num order by id
select id, i4 <> all ((select array_agg(i4) from num where false)) as r from num order by id
select id, i4 < any ((select array_agg(i4) from num where false)) as r from num order by id
select id, i4 < all ((select array_agg(i4) from num where false)) as r from num order by id
select id, i4 <= any ((select array_agg(i4) from num where false)) as r from num order by id
select id, i4 <= all ((select array_agg(i4) from num where false)) as r from num order by id
select id, i4 > any ((select array_agg(i4) from num where false)) as r from num order by id
select id, i4 > all ((select array_agg(i4) from num where false)) as r from num order by id
select id, i4 >= any ((select array_agg(i4) from num where false)) as r from num order by id
select id, i4 >= all ((select array_agg(i4) from num where false)) as r from num order by id
select id, n = any ('{1.0,2.50,null}'::numeric[]) as r from num order by id
select id, n = all ('{1.0,2.50,null}'::numeric[]) as r from num order by id
select id, n <> any ('{1.0,2.50,null}'::numeric[]) as r from num order by id
select id, n <> all ('{1.0,2.50,null}'::numeric[]) as r from num order by id
select id, n < any ('{1.0,2.50,null}'::numeric[]) as r from num order by id
select id, n < all ('{1.0,2.50,null}'::numeric[]) as r from num order by id
select id, n <= any ('{1.0,2.50,null}'::numeric[]) as r from num order by id
select id, n <= all ('{1.0,2.50,null}'::numeric[]) as r from num order by id
select id, n > any ('{1.0,2.50,null}'::numeric[]) as r from num order by id
select id, n > all ('{1.0,2.50,null}'::numeric[]) as r from num order by id
select id, n >= any ('{1.0,2.50,null}'::numeric[]) as r from num order by id
select id, n >= all ('{1.0,2.50,null}'::numeric[]) as r from num order by id
select id, n = any (array(select n from num where n < 10)) as r from num order by id
select id, n = all (array(select n from num where n < 10)) as r from num order by id
select id, n <> any (array(select n from num where n < 10)) as r from num order by id
select id, n <> all (array(select n from num where n < 10)) as r from num order by id
select id, n < any (array(select n from num where n < 10)) as r from num order by id
select id, n < all (array(select n from num where n < 10)) as r from num order by id
select id, n <= any (array(select n from num where n < 10)) as r from num order by id
select id, n <= all (array(select n from num where n < 10)) as r from num order by id
select id, n > any (array(select n from num where n < 10)) as r from num order by id
select id, n > all (array(select n from num where n < 10)) as r from num order by id
select id, n >= any (array(select n from num where n < 10)) as r from num order by id
select id, n >= all (array(select n from num where n < 10)) as r from num order by id
select id, n = any ((select array_agg(n2) from num)) as r from num order by id
select id, n = all ((select array_agg(n2) from num)) as r from num order by id
select id, n <> any ((select array_agg(n2) from num)) as r from num order by id
select id, n <> all ((select array_agg(n2) from num)) as r from num order by id
select id, n < any ((select array_agg(n2) from num)) as r from num order by id
select id, n < all ((select array_agg(n2) from num)) as r from num order by id
select id, n <= any ((select array_agg(n2) from num)) as r from num order by id
select id, n <= all ((select array_agg(n2) from num)) as r from num order by id
select id, n > any ((select array_agg(n2) from num)) as r from num order by id
select id, n > all ((select array_agg(n2) from num)) as r from num order by id
select id, n >= any ((select array_agg(n2) from num)) as r from num order by id
select id, n >= all ((select array_agg(n2) from num)) as r from num order by id
select id, n = any ('{NaN}'::numeric[]) as r from num order by id
select id, n = all ('{NaN}'::numeric[]) as r from num order by id
select id, n <> any ('{NaN}'::numeric[]) as r from num order by id
select id, n <> all ('{NaN}'::numeric[]) as r from num order by id
select id, n < any ('{NaN}'::numeric[]) as r from num order by id
select id, n < all ('{NaN}'::numeric[]) as r from num order by id
select id, n <= any ('{NaN}'::numeric[]) as r from num order by id
select id, n <= all ('{NaN}'::numeric[]) as r from num order by id
select id, n > any ('{NaN}'::numeric[]) as r from num order by id
select id, n > all ('{NaN}'::numeric[]) as r from num order by id
select id, n >= any ('{NaN}'::numeric[]) as r from num order by id
select id, n >= all ('{NaN}'::numeric[]) as r from num order by id
select id, f8 = any ('{0.1,NaN}'::float8[]) as r from num order by id
select id, f8 = all ('{0.1,NaN}'::float8[]) as r from num order by id
select id, f8 <> any ('{0.1,NaN}'::float8[]) as r from num order by id
select id, f8 <> all ('{0.1,NaN}'::float8[]) as r from num order by id
select id, f8 < any ('{0.1,NaN}'::float8[]) as r from num order by id
select id, f8 < all ('{0.1,NaN}'::float8[]) as r from num order by id
select id, f8 <= any ('{0.1,NaN}'::float8[]) as r from num order by id
select id, f8 <= all ('{0.1,NaN}'::float8[]) as r from num order by id
select id, f8 > any ('{0.1,NaN}'::float8[]) as r from num order by id
select id, f8 > all ('{0.1,NaN}'::float8[]) as r from num order by id
select id, f8 >= any ('{0.1,NaN}'::float8[]) as r from num order by id
select id, f8 >= all ('{0.1,NaN}'::float8[]) as r from num order by id
select id, f8 = any (array(select f8 from num)) as r from num order by id
select id, f8 = all (array(select f8 from num)) as r from num order by id
select id, f8 <> any (array(select f8 from num)) as r from num order by id
select id, f8 <> all (array(select f8 from num)) as r from num order by id
select id, f8 < any (array(select f8 from num)) as r from num order by id
select id, f8 < all (array(select f8 from num)) as r from num order by id
select id, f8 <= any (array(select f8 from num)) as r from num order by id
select id, f8 <= all (array(select f8 from num)) as r from num order by id
select id, f8 > any (array(select f8 from num)) as r from num order by id
select id, f8 > all (array(select f8 from num)) as r from num order by id
select id, f8 >= any (array(select f8 from num)) as r from num order by id
select id, f8 >= all (array(select f8 from num)) as r from num order by id
select e.id from emp e join dept d on d.id = e.dept where e.name = any ('{Ada,Bob,null}'::text[]) order by e.id
select e.id from emp e where not (e.name = any ('{Ada,Bob,null}'::text[])) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name = all ('{Ada,Bob,null}'::text[]) order by e.id
select e.id from emp e where not (e.name = all ('{Ada,Bob,null}'::text[])) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name <> any ('{Ada,Bob,null}'::text[]) order by e.id
select e.id from emp e where not (e.name <> any ('{Ada,Bob,null}'::text[])) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name <> all ('{Ada,Bob,null}'::text[]) order by e.id
select e.id from emp e where not (e.name <> all ('{Ada,Bob,null}'::text[])) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name < any ('{Ada,Bob,null}'::text[]) order by e.id
select e.id from emp e where not (e.name < any ('{Ada,Bob,null}'::text[])) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name < all ('{Ada,Bob,null}'::text[]) order by e.id
select e.id from emp e where not (e.name < all ('{Ada,Bob,null}'::text[])) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name <= any ('{Ada,Bob,null}'::text[]) order by e.id
select e.id from emp e where not (e.name <= any ('{Ada,Bob,null}'::text[])) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name <= all ('{Ada,Bob,null}'::text[]) order by e.id
select e.id from emp e where not (e.name <= all ('{Ada,Bob,null}'::text[])) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name > any ('{Ada,Bob,null}'::text[]) order by e.id
select e.id from emp e where not (e.name > any ('{Ada,Bob,null}'::text[])) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name > all ('{Ada,Bob,null}'::text[]) order by e.id
select e.id from emp e where not (e.name > all ('{Ada,Bob,null}'::text[])) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name >= any ('{Ada,Bob,null}'::text[]) order by e.id
select e.id from emp e where not (e.name >= any ('{Ada,Bob,null}'::text[])) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name >= all ('{Ada,Bob,null}'::text[]) order by e.id
select e.id from emp e where not (e.name >= all ('{Ada,Bob,null}'::text[])) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name = any (array(select name from emp where id > 3)) order by e.id
select e.id from emp e where not (e.name = any (array(select name from emp where id > 3))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name = all (array(select name from emp where id > 3)) order by e.id
select e.id from emp e where not (e.name = all (array(select name from emp where id > 3))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name <> any (array(select name from emp where id > 3)) order by e.id
select e.id from emp e where not (e.name <> any (array(select name from emp where id > 3))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name <> all (array(select name from emp where id > 3)) order by e.id
select e.id from emp e where not (e.name <> all (array(select name from emp where id > 3))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name < any (array(select name from emp where id > 3)) order by e.id
select e.id from emp e where not (e.name < any (array(select name from emp where id > 3))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name < all (array(select name from emp where id > 3)) order by e.id
select e.id from emp e where not (e.name < all (array(select name from emp where id > 3))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name <= any (array(select name from emp where id > 3)) order by e.id
select e.id from emp e where not (e.name <= any (array(select name from emp where id > 3))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name <= all (array(select name from emp where id > 3)) order by e.id
select e.id from emp e where not (e.name <= all (array(select name from emp where id > 3))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name > any (array(select name from emp where id > 3)) order by e.id
select e.id from emp e where not (e.name > any (array(select name from emp where id > 3))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name > all (array(select name from emp where id > 3)) order by e.id
select e.id from emp e where not (e.name > all (array(select name from emp where id > 3))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name >= any (array(select name from emp where id > 3)) order by e.id
select e.id from emp e where not (e.name >= any (array(select name from emp where id > 3))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name >= all (array(select name from emp where id > 3)) order by e.id
select e.id from emp e where not (e.name >= all (array(select name from emp where id > 3))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name = any ((select array_agg(name) from emp where dept = 1)) order by e.id
select e.id from emp e where not (e.name = any ((select array_agg(name) from emp where dept = 1))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name = all ((select array_agg(name) from emp where dept = 1)) order by e.id
select e.id from emp e where not (e.name = all ((select array_agg(name) from emp where dept = 1))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name <> any ((select array_agg(name) from emp where dept = 1)) order by e.id
select e.id from emp e where not (e.name <> any ((select array_agg(name) from emp where dept = 1))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name <> all ((select array_agg(name) from emp where dept = 1)) order by e.id
select e.id from emp e where not (e.name <> all ((select array_agg(name) from emp where dept = 1))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name < any ((select array_agg(name) from emp where dept = 1)) order by e.id
select e.id from emp e where not (e.name < any ((select array_agg(name) from emp where dept = 1))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name < all ((select array_agg(name) from emp where dept = 1)) order by e.id
select e.id from emp e where not (e.name < all ((select array_agg(name) from emp where dept = 1))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name <= any ((select array_agg(name) from emp where dept = 1)) order by e.id
select e.id from emp e where not (e.name <= any ((select array_agg(name) from emp where dept = 1))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name <= all ((select array_agg(name) from emp where dept = 1)) order by e.id
select e.id from emp e where not (e.name <= all ((select array_agg(name) from emp where dept = 1))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name > any ((select array_agg(name) from emp where dept = 1)) order by e.id
select e.id from emp e where not (e.name > any ((select array_agg(name) from emp where dept = 1))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name > all ((select array_agg(name) from emp where dept = 1)) order by e.id
select e.id from emp e where not (e.name > all ((select array_agg(name) from emp where dept = 1))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name >= any ((select array_agg(name) from emp where dept = 1)) order by e.id
select e.id from emp e where not (e.name >= any ((select array_agg(name) from emp where dept = 1))) order by e.id
select e.id from emp e join dept d on d.id = e.dept where e.name >= all ((select array_agg(name) from emp where dept = 1)) order by e.id
select e.id from emp e where not (e.name >= all ((select array_agg(name) from emp where dept = 1))) order by e.id
select id from emp where hired = any ('{2019-01-15,2020-02-29,null}'::date[]) order by id
select id from emp where hired = all ('{2019-01-15,2020-02-29,null}'::date[]) order by id
select id from emp where hired <> any ('{2019-01-15,2020-02-29,null}'::date[]) order by id
select id from emp where hired <> all ('{2019-01-15,2020-02-29,null}'::date[]) order by id
select id from emp where hired < any ('{2019-01-15,2020-02-29,null}'::date[]) order by id
select id from emp where hired < all ('{2019-01-15,2020-02-29,null}'::date[]) order by id
select id from emp where hired <= any ('{2019-01-15,2020-02-29,null}'::date[]) order by id
select id from emp where hired <= all ('{2019-01-15,2020-02-29,null}'::date[]) order by id
select id from emp where hired > any ('{2019-01-15,2020-02-29,null}'::date[]) order by id
select id from emp where hired > all ('{2019-01-15,2020-02-29,null}'::date[]) order by id
select id from emp where hired >= any ('{2019-01-15,2020-02-29,null}'::date[]) order by id
select id from emp where hired >= all ('{2019-01-15,2020-02-29,null}'::date[]) order by id
select id from emp where hired = any ('{2019-01-15 00:00,2020-02-29 00:00}'::timestamp[]) order by id
select id from emp where hired = all ('{2019-01-15 00:00,2020-02-29 00:00}'::timestamp[]) order by id
select id from emp where hired <> any ('{2019-01-15 00:00,2020-02-29 00:00}'::timestamp[]) order by id
select id from emp where hired <> all ('{2019-01-15 00:00,2020-02-29 00:00}'::timestamp[]) order by id
select id from emp where hired < any ('{2019-01-15 00:00,2020-02-29 00:00}'::timestamp[]) order by id
select id from emp where hired < all ('{2019-01-15 00:00,2020-02-29 00:00}'::timestamp[]) order by id
select id from emp where hired <= any ('{2019-01-15 00:00,2020-02-29 00:00}'::timestamp[]) order by id
select id from emp where hired <= all ('{2019-01-15 00:00,2020-02-29 00:00}'::timestamp[]) order by id
select id from emp where hired > any ('{2019-01-15 00:00,2020-02-29 00:00}'::timestamp[]) order by id
select id from emp where hired > all ('{2019-01-15 00:00,2020-02-29 00:00}'::timestamp[]) order by id
select id from emp where hired >= any ('{2019-01-15 00:00,2020-02-29 00:00}'::timestamp[]) order by id
select id from emp where hired >= all ('{2019-01-15 00:00,2020-02-29 00:00}'::timestamp[]) order by id
select id from emp where hired = any ('{2019-01-15 00:00,2020-02-29 12:00}'::timestamptz[]) order by id
select id from emp where hired = all ('{2019-01-15 00:00,2020-02-29 12:00}'::timestamptz[]) order by id
select id from emp where hired <> any ('{2019-01-15 00:00,2020-02-29 12:00}'::timestamptz[]) order by id
select id from emp where hired <> all ('{2019-01-15 00:00,2020-02-29 12:00}'::timestamptz[]) order by id
select id from emp where hired < any ('{2019-01-15 00:00,2020-02-29 12:00}'::timestamptz[]) order by id
select id from emp where hired < all ('{2019-01-15 00:00,2020-02-29 12:00}'::timestamptz[]) order by id
select id from emp where hired <= any ('{2019-01-15 00:00,2020-02-29 12:00}'::timestamptz[]) order by id
select id from emp where hired <= all ('{2019-01-15 00:00,2020-02-29 12:00}'::timestamptz[]) order by id
select id from emp where hired > any ('{2019-01-15 00:00,2020-02-29 12:00}'::timestamptz[]) order by id
select id from emp where hired > all ('{2019-01-15 00:00,2020-02-29 12:00}'::timestamptz[]) order by id
select id from emp where hired >= any ('{2019-01-15 00:00,2020-02-29 12:00}'::timestamptz[]) order by id
select id from emp where hired >= all ('{2019-01-15 00:00,2020-02-29 12:00}'::timestamptz[]) order by id
select id from sale where kind = any ('{xyz,ab}'::char(3)[]) and id < 12 order by id
select id from sale where kind = all ('{xyz,ab}'::char(3)[]) and id < 12 order by id
select id from sale where kind <> any ('{xyz,ab}'::char(3)[]) and id < 12 order by id
select id from sale where kind <> all ('{xyz,ab}'::char(3)[]) and id < 12 order by id
select id from sale where kind < any ('{xyz,ab}'::char(3)[]) and id < 12 order by id
select id from sale where kind < all ('{xyz,ab}'::char(3)[]) and id < 12 order by id
select id from sale where kind <= any ('{xyz,ab}'::char(3)[]) and id < 12 order by id
select id from sale where kind <= all ('{xyz,ab}'::char(3)[]) and id < 12 order by id
select id from sale where kind > any ('{xyz,ab}'::char(3)[]) and id < 12 order by id
select id from sale where kind > all ('{xyz,ab}'::char(3)[]) and id < 12 order by id
select id from sale where kind >= any ('{xyz,ab}'::char(3)[]) and id < 12 order by id
select id from sale where kind >= all ('{xyz,ab}'::char(3)[]) and id < 12 order by id
select id from sale where kind = any ('{ab}'::bpchar[]) and id < 12 order by id
select id from sale where kind = all ('{ab}'::bpchar[]) and id < 12 order by id
select id from sale where kind <> any ('{ab}'::bpchar[]) and id < 12 order by id
select id from sale where kind <> all ('{ab}'::bpchar[]) and id < 12 order by id
select id from sale where kind < any ('{ab}'::bpchar[]) and id < 12 order by id
select id from sale where kind < all ('{ab}'::bpchar[]) and id < 12 order by id
select id from sale where kind <= any ('{ab}'::bpchar[]) and id < 12 order by id
select id from sale where kind <= all ('{ab}'::bpchar[]) and id < 12 order by id
select id from sale where kind > any ('{ab}'::bpchar[]) and id < 12 order by id
select id from sale where kind > all ('{ab}'::bpchar[]) and id < 12 order by id
select id from sale where kind >= any ('{ab}'::bpchar[]) and id < 12 order by id
select id from sale where kind >= all ('{ab}'::bpchar[]) and id < 12 order by id
select id, m = any ('{sad,ok}'::mood[]) as r from felt order by id
select id, m = any (ms) as r from felt order by id
select f.id from felt f join felt g on g.id = f.id where f.m = any (array(select d from felt)) order by 1
select id, 'b' = any (tags) as r from emp order by id
select e.id, 'b' = any (e.tags) as r from emp e join dept d on d.id = e.dept order by e.id
select info = any (array['null', '"text"']::jsonb[]) as r from emp order by id
select id, m = all ('{sad,ok}'::mood[]) as r from felt order by id
select id, m = all (ms) as r from felt order by id
select f.id from felt f join felt g on g.id = f.id where f.m = all (array(select d from felt)) order by 1
select id, 'b' = all (tags) as r from emp order by id
select e.id, 'b' = all (e.tags) as r from emp e join dept d on d.id = e.dept order by e.id
select info = all (array['null', '"text"']::jsonb[]) as r from emp order by id
select id, m <> any ('{sad,ok}'::mood[]) as r from felt order by id
select id, m <> any (ms) as r from felt order by id
select f.id from felt f join felt g on g.id = f.id where f.m <> any (array(select d from felt)) order by 1
select id, 'b' <> any (tags) as r from emp order by id
select e.id, 'b' <> any (e.tags) as r from emp e join dept d on d.id = e.dept order by e.id
select info <> any (array['null', '"text"']::jsonb[]) as r from emp order by id
select id, m <> all ('{sad,ok}'::mood[]) as r from felt order by id
select id, m <> all (ms) as r from felt order by id
select f.id from felt f join felt g on g.id = f.id where f.m <> all (array(select d from felt)) order by 1
select id, 'b' <> all (tags) as r from emp order by id
select e.id, 'b' <> all (e.tags) as r from emp e join dept d on d.id = e.dept order by e.id
select info <> all (array['null', '"text"']::jsonb[]) as r from emp order by id
select id, m < any ('{sad,ok}'::mood[]) as r from felt order by id
select id, m < any (ms) as r from felt order by id
select f.id from felt f join felt g on g.id = f.id where f.m < any (array(select d from felt)) order by 1
select id, 'b' < any (tags) as r from emp order by id
select e.id, 'b' < any (e.tags) as r from emp e join dept d on d.id = e.dept order by e.id
select info < any (array['null', '"text"']::jsonb[]) as r from emp order by id
select id, m < all ('{sad,ok}'::mood[]) as r from felt order by id
select id, m < all (ms) as r from felt order by id
select f.id from felt f join felt g on g.id = f.id where f.m < all (array(select d from felt)) order by 1
select id, 'b' < all (tags) as r from emp order by id
select e.id, 'b' < all (e.tags) as r from emp e join dept d on d.id = e.dept order by e.id
select info < all (array['null', '"text"']::jsonb[]) as r from emp order by id
select id, m <= any ('{sad,ok}'::mood[]) as r from felt order by id
select id, m <= any (ms) as r from felt order by id
select f.id from felt f join felt g on g.id = f.id where f.m <= any (array(select d from felt)) order by 1
select id, 'b' <= any (tags) as r from emp order by id
select e.id, 'b' <= any (e.tags) as r from emp e join dept d on d.id = e.dept order by e.id
select info <= any (array['null', '"text"']::jsonb[]) as r from emp order by id
select id, m <= all ('{sad,ok}'::mood[]) as r from felt order by id
select id, m <= all (ms) as r from felt order by id
select f.id from felt f join felt g on g.id = f.id where f.m <= all (array(select d from felt)) order by 1
select id, 'b' <= all (tags) as r from emp order by id
select e.id, 'b' <= all (e.tags) as r from emp e join dept d on d.id = e.dept order by e.id
select info <= all (array['null', '"text"']::jsonb[]) as r from emp order by id
select id, m > any ('{sad,ok}'::mood[]) as r from felt order by id
select id, m > any (ms) as r from felt order by id
select f.id from felt f join felt g on g.id = f.id where f.m > any (array(select d from felt)) order by 1
select id, 'b' > any (tags) as r from emp order by id
select e.id, 'b' > any (e.tags) as r from emp e join dept d on d.id = e.dept order by e.id
select info > any (array['null', '"text"']::jsonb[]) as r from emp order by id
select id, m > all ('{sad,ok}'::mood[]) as r from felt order by id
select id, m > all (ms) as r from felt order by id
select f.id from felt f join felt g on g.id = f.id where f.m > all (array(select d from felt)) order by 1
select id, 'b' > all (tags) as r from emp order by id
select e.id, 'b' > all (e.tags) as r from emp e join dept d on d.id = e.dept order by e.id
select info > all (array['null', '"text"']::jsonb[]) as r from emp order by id
select id, m >= any ('{sad,ok}'::mood[]) as r from felt order by id
select id, m >= any (ms) as r from felt order by id
select f.id from felt f join felt g on g.id = f.id where f.m >= any (array(select d from felt)) order by 1
select id, 'b' >= any (tags) as r from emp order by id
select e.id, 'b' >= any (e.tags) as r from emp e join dept d on d.id = e.dept order by e.id
select info >= any (array['null', '"text"']::jsonb[]) as r from emp order by id
select id, m >= all ('{sad,ok}'::mood[]) as r from felt order by id
select id, m >= all (ms) as r from felt order by id
select f.id from felt f join felt g on g.id = f.id where f.m >= all (array(select d from felt)) order by 1
select id, 'b' >= all (tags) as r from emp order by id
select e.id, 'b' >= all (e.tags) as r from emp e join dept d on d.id = e.dept order by e.id
select info >= all (array['null', '"text"']::jsonb[]) as r from emp order by id
select id, i8 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) as r from num order by id
select a.id, a.i8 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) as r from num a left join num b on b.id = a.id and b.i4 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) order by a.id
select count(*) filter (where i4 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399)) from num
select i4 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) as r, count(*) from num group by 1 order by 1
select id, case when i4 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) then 'y' else 'n' end from num a where exists (select 1 from num b where b.i4 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) and b.id = a.id) order by id
select id from num where n in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) order by id
select id from num where f8 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) order by id
select (i4 + i2) in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) as r from num order by id
select id, i8 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) as r from num order by id
select a.id, a.i8 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) as r from num a left join num b on b.id = a.id and b.i4 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) order by a.id
select count(*) filter (where i4 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399)) from num
select i4 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) as r, count(*) from num group by 1 order by 1
select id, case when i4 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) then 'y' else 'n' end from num a where exists (select 1 from num b where b.i4 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) and b.id = a.id) order by id
select id from num where n not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) order by id
select id from num where f8 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) order by id
select (i4 + i2) not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399) as r from num order by id
select id, i8 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) as r from num order by id
select a.id, a.i8 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) as r from num a left join num b on b.id = a.id and b.i4 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) order by a.id
select count(*) filter (where i4 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null)) from num
select i4 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) as r, count(*) from num group by 1 order by 1
select id, case when i4 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) then 'y' else 'n' end from num a where exists (select 1 from num b where b.i4 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) and b.id = a.id) order by id
select id from num where n in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) order by id
select id from num where f8 in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) order by id
select (i4 + i2) in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) as r from num order by id
select id, i8 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) as r from num order by id
select a.id, a.i8 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) as r from num a left join num b on b.id = a.id and b.i4 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) order by a.id
select count(*) filter (where i4 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null)) from num
select i4 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) as r, count(*) from num group by 1 order by 1
select id, case when i4 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) then 'y' else 'n' end from num a where exists (select 1 from num b where b.i4 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) and b.id = a.id) order by id
select id from num where n not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) order by id
select id from num where f8 not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) order by id
select (i4 + i2) not in (0,7,14,21,28,35,42,49,56,63,70,77,84,91,98,105,112,119,126,133,140,147,154,161,168,175,182,189,196,203,210,217,224,231,238,245,252,259,266,273,280,287,294,301,308,315,322,329,336,343,350,357,364,371,378,385,392,399,null) as r from num order by id
select id, name in ('a0','a1','a2','a3','a4','a5','a6','a7','a8','a9','a10','a11','a12','a13','a14','a15','a16','a17','a18','a19','b0','b1','b2','b3','b4','b5','b6','b7','b8','b9','b10','b11','b12','b13','b14','b15','b16','b17','b18','b19','Ada') as r from emp order by id
select e.id, e.name in ('a0','a1','a2','a3','a4','a5','a6','a7','a8','a9','a10','a11','a12','a13','a14','a15','a16','a17','a18','a19','b0','b1','b2','b3','b4','b5','b6','b7','b8','b9','b10','b11','b12','b13','b14','b15','b16','b17','b18','b19','Ada') as r from emp e join dept d on d.id = e.dept order by e.id
select id, name not in ('a0','a1','a2','a3','a4','a5','a6','a7','a8','a9','a10','a11','a12','a13','a14','a15','a16','a17','a18','a19','b0','b1','b2','b3','b4','b5','b6','b7','b8','b9','b10','b11','b12','b13','b14','b15','b16','b17','b18','b19','Ada') as r from emp order by id
select e.id, e.name not in ('a0','a1','a2','a3','a4','a5','a6','a7','a8','a9','a10','a11','a12','a13','a14','a15','a16','a17','a18','a19','b0','b1','b2','b3','b4','b5','b6','b7','b8','b9','b10','b11','b12','b13','b14','b15','b16','b17','b18','b19','Ada') as r from emp e join dept d on d.id = e.dept order by e.id
select id, name in ('a0','a1','a2','a3','a4','a5','a6','a7','a8','a9','a10','a11','a12','a13','a14','a15','a16','a17','a18','a19','b0','b1','b2','b3','b4','b5','b6','b7','b8','b9','b10','b11','b12','b13','b14','b15','b16','b17','b18','b19','Ada',null) as r from emp order by id
select e.id, e.name in ('a0','a1','a2','a3','a4','a5','a6','a7','a8','a9','a10','a11','a12','a13','a14','a15','a16','a17','a18','a19','b0','b1','b2','b3','b4','b5','b6','b7','b8','b9','b10','b11','b12','b13','b14','b15','b16','b17','b18','b19','Ada',null) as r from emp e join dept d on d.id = e.dept order by e.id
select id, name not in ('a0','a1','a2','a3','a4','a5','a6','a7','a8','a9','a10','a11','a12','a13','a14','a15','a16','a17','a18','a19','b0','b1','b2','b3','b4','b5','b6','b7','b8','b9','b10','b11','b12','b13','b14','b15','b16','b17','b18','b19','Ada',null) as r from emp order by id
select e.id, e.name not in ('a0','a1','a2','a3','a4','a5','a6','a7','a8','a9','a10','a11','a12','a13','a14','a15','a16','a17','a18','a19','b0','b1','b2','b3','b4','b5','b6','b7','b8','b9','b10','b11','b12','b13','b14','b15','b16','b17','b18','b19','Ada',null) as r from emp e join dept d on d.id = e.dept order by e.id
select id from emp e where id = any (array(select id from sale where emp = e.id and id < 5)) order by id
select id from emp e where id <> all (array(select emp from sale s where s.emp <> e.id and s.id < 6)) order by id
select id from emp where array[id, 1] = any (array(select array[id, 1] from dept)) order by id
select id from emp where (id, dept) in ((1, 1), (2, 1), (4, 2), (9, null)) order by id
select id, (id, dept) not in ((1, 1), (4, 3), (6, null)) as r from emp order by id
select id, (id, dept) in ((1, 1), (7, null), (null, 2)) as r from emp order by id
select id from emp where id = any ((select array_agg(id) from dept)::bigint[]) order by id
select id from emp where id::numeric = any (array(select id from dept)) order by id
select id from emp where name like any (array(select left(name, 1) || '%' from emp where id < 3)) order by id
delete from sale where id = any (array(select id from emp)) returning id
update emp set pay = 1 where id <> all (array(select id from dept)) returning id, pay
select 1 = any (array(select 1)), 1 = any (array(select null::int)), 1 = any (array(select 2)), null = any (array(select 2)), 1 <> all (array(select 1 where false))
select 1 in (1, null), 2 in (1, null), null in (1, 2), 2 not in (1, null), 1 not in (1, null)
select case id when 1 then id = any ('{1,2}'::int4[]::int8[]) else id <> all ('{1,2}'::int2[]::int8[]) end as r from emp order by id
-- rows of values: every part by its own types, NULLs among them; chains of OR and AND; what may raise in them
select id, (i4, i8) in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51)) as r from num order by id
select id, (i4, i8) not in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51)) as r from num order by id
select a.id, (a.i4, a.i8) in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51)) as r from num a left join dept d on d.id = a.id order by a.id
select a.id, (a.i4, a.i8) not in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51)) as r from num a left join dept d on d.id = a.id order by a.id
select id, (i2, n) in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51)) as r from num order by id
select id, (i2, n) not in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51)) as r from num order by id
select id, (i4, i8) in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) as r from num order by id
select id, (i4, i8) not in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) as r from num order by id
select a.id, (a.i4, a.i8) in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) as r from num a left join dept d on d.id = a.id order by a.id
select a.id, (a.i4, a.i8) not in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) as r from num a left join dept d on d.id = a.id order by a.id
select id, (i2, n) in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) as r from num order by id
select id, (i2, n) not in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) as r from num order by id
select id, (i4, i8) in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, null)) as r from num order by id
select id, (i4, i8) not in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, null)) as r from num order by id
select a.id, (a.i4, a.i8) in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, null)) as r from num a left join dept d on d.id = a.id order by a.id
select a.id, (a.i4, a.i8) not in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, null)) as r from num a left join dept d on d.id = a.id order by a.id
select id, (i2, n) in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, null)) as r from num order by id
select id, (i2, n) not in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, null)) as r from num order by id
select id, (i8, i4) in ((1, 1), (1000, 2.50), (4, 1e-30), (0, 0), (-1000, -2.50), (4, 2.5), (100, 0.1), (7, 'NaN'), (9223372036854775807, -0.0), (2147483647, 3), (50, 123456789012345678901234567890.123), (51, 7)) as r from num order by id
select id, (i8, i4) not in ((1, 1), (1000, 2.50), (4, 1e-30), (0, 0), (-1000, -2.50), (4, 2.5), (100, 0.1), (7, 'NaN'), (9223372036854775807, -0.0), (2147483647, 3), (50, 123456789012345678901234567890.123), (51, 7)) as r from num order by id
select id, (i4, f8) in ((1, '1'), (100, 0.1), (1000, 'Infinity'), (0, 0), (-100, -0.1), (3, 'NaN'), (4, 1.0), (7, 2), (-7, -0.0), (2147483647, 1e-30), (50, 7), (51, 1.7e308)) as r from num order by id
select id, (i4, f8) not in ((1, '1'), (100, 0.1), (1000, 'Infinity'), (0, 0), (-100, -0.1), (3, 'NaN'), (4, 1.0), (7, 2), (-7, -0.0), (2147483647, 1e-30), (50, 7), (51, 1.7e308)) as r from num order by id
select a.id, (a.f4, a.f8) in (('1', '1'), (0.1, 0.1), ('Infinity', 'Infinity'), (0, 0), (-0.1, -0.1), ('NaN', 'NaN'), (1.0, 1.0), (2, 2), (-0.0, -0.0), (1e-30, 1e-30), (7, 7), (1.7e308, 1.7e308)) as r from num a join num b on a.id = b.id order by a.id
select a.id, (a.f4, a.f8) not in (('1', '1'), (0.1, 0.1), ('Infinity', 'Infinity'), (0, 0), (-0.1, -0.1), ('NaN', 'NaN'), (1.0, 1.0), (2, 2), (-0.0, -0.0), (1e-30, 1e-30), (7, 7), (1.7e308, 1.7e308)) as r from num a join num b on a.id = b.id order by a.id
select id, (n, n2) in ((1, 1), (2.50, 2.50), (1e-30, 1e-30), (0, 0), (-2.50, -2.50), (2.5, 2.5), (0.1, 0.1), ('NaN', 'NaN'), (-0.0, -0.0), (3, 3), (123456789012345678901234567890.123, 123456789012345678901234567890.123), (7, 7)) as r from num order by id
select id, (n, n2) not in ((1, 1), (2.50, 2.50), (1e-30, 1e-30), (0, 0), (-2.50, -2.50), (2.5, 2.5), (0.1, 0.1), ('NaN', 'NaN'), (-0.0, -0.0), (3, 3), (123456789012345678901234567890.123, 123456789012345678901234567890.123), (7, 7)) as r from num order by id
select a.id, (a.n, a.n2) in ((1, 1), (2.50, 2.50), (1e-30, 1e-30), (0, 0), (-2.50, -2.50), (2.5, 2.5), (0.1, 0.1), ('NaN', 'NaN'), (-0.0, -0.0), (3, 3), (123456789012345678901234567890.123, 123456789012345678901234567890.123), (7, 7), (null, 0.001)) as r from num a join num b on a.id = b.id order by a.id
select a.id, (a.n, a.n2) not in ((1, 1), (2.50, 2.50), (1e-30, 1e-30), (0, 0), (-2.50, -2.50), (2.5, 2.5), (0.1, 0.1), ('NaN', 'NaN'), (-0.0, -0.0), (3, 3), (123456789012345678901234567890.123, 123456789012345678901234567890.123), (7, 7), (null, 0.001)) as r from num a join num b on a.id = b.id order by a.id
select id, (dept, name) in ((1, 'Ada'), (2, 'Bob'), (3, 'Cyd'), (1, 'Dan'), (2, 'Eve'), (3, 'Fay'), (1, 'gus_x'), (2, 'x'), (3, 'y'), (1, 'z'), (2, 'Ada '), (3, 'its'), (null, 'gus_x')) as r from emp order by id
select id, (dept, name) not in ((1, 'Ada'), (2, 'Bob'), (3, 'Cyd'), (1, 'Dan'), (2, 'Eve'), (3, 'Fay'), (1, 'gus_x'), (2, 'x'), (3, 'y'), (1, 'z'), (2, 'Ada '), (3, 'its'), (null, 'gus_x')) as r from emp order by id
select e.id, (e.dept, e.name) in ((1, 'Ada'), (2, 'Bob'), (3, 'Cyd'), (1, 'Dan'), (2, 'Eve'), (3, 'Fay'), (1, 'gus_x'), (2, 'x'), (3, 'y'), (1, 'z'), (2, 'Ada '), (3, 'its')) as r from emp e left join dept d on d.id = e.dept order by e.id
select e.id, (e.dept, e.name) not in ((1, 'Ada'), (2, 'Bob'), (3, 'Cyd'), (1, 'Dan'), (2, 'Eve'), (3, 'Fay'), (1, 'gus_x'), (2, 'x'), (3, 'y'), (1, 'z'), (2, 'Ada '), (3, 'its')) as r from emp e left join dept d on d.id = e.dept order by e.id
select e.id, (d.id, d.site, e.dept) not in ((1, 'Bern', 1), (2, 'Rom', 2), (3, 'Ulm', 3), (1, 'Bern', 1), (2, 'Rom', 2), (3, 'Ulm', 3), (1, 'Bern', 1), (2, 'Rom', 2), (3, 'Ulm', 3), (1, 'Bern', 1), (2, 'Rom', 2), (3, 'Ulm', 3)) as r from emp e left join dept d on d.id = e.dept order by e.id
select id, (id, dept, boss) in ((0, 1, 0), (1, 2, 1), (2, 3, 2), (3, 1, 3), (4, 2, 4), (5, 3, 0), (6, 1, 1), (7, 2, 2), (8, 3, 3), (9, 1, 4), (10, 2, 0), (11, 3, 1), (4, null, 1), (null, 3, null)) as r from emp order by id
select id, (id, dept, boss, pay, active) in ((0, 1, 0, 7000.5, true), (1, 2, 1, 7000.5, true), (2, 3, 2, 7000.5, true), (3, 1, 3, 7000.5, true), (4, 2, 4, 7000.5, true), (5, 3, 0, 7000.5, true), (6, 1, 1, 7000.5, true), (7, 2, 2, 7000.5, true), (8, 3, 3, 7000.5, true), (9, 1, 4, 7000.5, true), (10, 2, 0, 7000.5, true), (11, 3, 1, 7000.5, true), (4, 2, 1, null, true)) as r from emp order by id
select id, (emp, kind) in ((1, 'ab'), (2, 'xyz'), (3, 'ab '), (4, 'a'), (5, 'b'), (6, 'c'), (7, 'd'), (8, 'e'), (1, 'ab'), (2, 'xyz'), (3, 'ab '), (4, 'a')) as r from sale order by id
select id, (emp, kind) not in ((1, 'ab'), (2, 'xyz'), (3, 'ab '), (4, 'a'), (5, 'b'), (6, 'c'), (7, 'd'), (8, 'e'), (1, 'ab'), (2, 'xyz'), (3, 'ab '), (4, 'a')) as r from sale order by id
select s.id, (s.emp, s.kind) in ((1, 'ab'), (2, 'xyz'), (3, 'ab '), (4, 'a'), (5, 'b'), (6, 'c'), (7, 'd'), (8, 'e'), (1, 'ab'), (2, 'xyz'), (3, 'ab '), (4, 'a')) as r from sale s join dept d on d.id = s.emp order by s.id
select s.id, (s.emp, s.kind) not in ((1, 'ab'), (2, 'xyz'), (3, 'ab '), (4, 'a'), (5, 'b'), (6, 'c'), (7, 'd'), (8, 'e'), (1, 'ab'), (2, 'xyz'), (3, 'ab '), (4, 'a')) as r from sale s join dept d on d.id = s.emp order by s.id
select id, (m, id) in (('sad', 0), ('so-so', 1), ('ok', 2), ('happy', 3), ('sad', 4), ('so-so', 5), ('ok', 6), ('happy', 7), ('sad', 8), ('so-so', 9), ('ok', 10), ('happy', 11)) as r from felt order by id
select id, (m, id) not in (('sad', 0), ('so-so', 1), ('ok', 2), ('happy', 3), ('sad', 4), ('so-so', 5), ('ok', 6), ('happy', 7), ('sad', 8), ('so-so', 9), ('ok', 10), ('happy', 11)) as r from felt order by id
select f.id, (f.m, f.d) in (('sad', 'sad'), ('so-so', 'sad'), ('ok', 'sad'), ('happy', 'sad'), ('sad', 'so-so'), ('so-so', 'so-so'), ('ok', 'so-so'), ('happy', 'so-so'), ('sad', 'ok'), ('so-so', 'ok'), ('ok', 'ok'), ('happy', 'ok')) as r from felt f join felt g on f.id = g.id order by f.id
select f.id, (f.m, f.d) not in (('sad', 'sad'), ('so-so', 'sad'), ('ok', 'sad'), ('happy', 'sad'), ('sad', 'so-so'), ('so-so', 'so-so'), ('ok', 'so-so'), ('happy', 'so-so'), ('sad', 'ok'), ('so-so', 'ok'), ('ok', 'ok'), ('happy', 'ok')) as r from felt f join felt g on f.id = g.id order by f.id
select id, (d, ts) in ((timestamp '2024-11-03 01:30', date '2024-11-03'), (timestamp '2024-03-10 02:30', date '2024-03-10'), (timestamp '2024-11-03', date '2024-03-09'), (timestamp '2024-03-10', date '2024-04-07'), (timestamp '2011-12-30 12:00', date '2011-12-30'), (timestamp '2000-01-01', date '2000-01-01'), (timestamp '2000-01-02', date '2000-01-02'), (timestamp '2000-01-03', date '2000-01-03')) as r from instants order by id
select id, (d, ts) not in ((timestamp '2024-11-03 01:30', date '2024-11-03'), (timestamp '2024-03-10 02:30', date '2024-03-10'), (timestamp '2024-11-03', date '2024-03-09'), (timestamp '2024-03-10', date '2024-04-07'), (timestamp '2011-12-30 12:00', date '2011-12-30'), (timestamp '2000-01-01', date '2000-01-01'), (timestamp '2000-01-02', date '2000-01-02'), (timestamp '2000-01-03', date '2000-01-03')) as r from instants order by id
select a.id, (a.d, a.x) in ((date '2024-11-03', timestamp '2024-11-03 01:30'), (date '2024-03-10', timestamp '2024-03-10 02:30'), (date '2024-03-09', timestamp '2024-11-03'), (date '2024-04-07', timestamp '2024-03-10'), (date '2011-12-30', timestamp '2011-12-30 12:00'), (date '2000-01-01', timestamp '2000-01-01'), (date '2000-01-02', timestamp '2000-01-02'), (date '2000-01-03', timestamp '2000-01-03')) as r from instants a join instants b on a.id = b.id order by a.id
select a.id, (a.d, a.x) not in ((date '2024-11-03', timestamp '2024-11-03 01:30'), (date '2024-03-10', timestamp '2024-03-10 02:30'), (date '2024-03-09', timestamp '2024-11-03'), (date '2024-04-07', timestamp '2024-03-10'), (date '2011-12-30', timestamp '2011-12-30 12:00'), (date '2000-01-01', timestamp '2000-01-01'), (date '2000-01-02', timestamp '2000-01-02'), (date '2000-01-03', timestamp '2000-01-03')) as r from instants a join instants b on a.id = b.id order by a.id
set timezone = 'America/New_York' ;; select id, (x, d) in ((timestamp '2024-11-03 01:30', timestamp '2024-11-03 01:30'), (timestamp '2024-03-10 02:30', timestamp '2024-03-10 02:30'), (timestamp '2024-11-03', timestamp '2024-11-03'), (timestamp '2024-03-10', timestamp '2024-03-10'), (timestamp '2011-12-30 12:00', timestamp '2011-12-30 12:00'), (timestamp '2000-01-01', timestamp '2000-01-01'), (timestamp '2000-01-02', timestamp '2000-01-02'), (timestamp '2000-01-03', timestamp '2000-01-03')) as r from instants order by id ;; select a.id, (a.ts, a.d) not in ((timestamptz '2024-11-03 01:30', date '2024-11-03'), (timestamptz '2024-03-10 02:30', date '2024-03-10'), (timestamptz '2024-11-03', date '2024-03-09'), (timestamptz '2024-03-10', date '2024-04-07'), (timestamptz '2011-12-30 12:00', date '2011-12-30'), (timestamptz '2000-01-01', date '2000-01-01'), (timestamptz '2000-01-02', date '2000-01-02'), (timestamptz '2000-01-03', date '2000-01-03')) as r from instants a join instants b on a.id = b.id order by a.id
set timezone = '+05:30' ;; select id, (x, d) in ((timestamp '2024-11-03 01:30', timestamp '2024-11-03 01:30'), (timestamp '2024-03-10 02:30', timestamp '2024-03-10 02:30'), (timestamp '2024-11-03', timestamp '2024-11-03'), (timestamp '2024-03-10', timestamp '2024-03-10'), (timestamp '2011-12-30 12:00', timestamp '2011-12-30 12:00'), (timestamp '2000-01-01', timestamp '2000-01-01'), (timestamp '2000-01-02', timestamp '2000-01-02'), (timestamp '2000-01-03', timestamp '2000-01-03')) as r from instants order by id ;; select a.id, (a.ts, a.d) not in ((timestamptz '2024-11-03 01:30', date '2024-11-03'), (timestamptz '2024-03-10 02:30', date '2024-03-10'), (timestamptz '2024-11-03', date '2024-03-09'), (timestamptz '2024-03-10', date '2024-04-07'), (timestamptz '2011-12-30 12:00', date '2011-12-30'), (timestamptz '2000-01-01', date '2000-01-01'), (timestamptz '2000-01-02', date '2000-01-02'), (timestamptz '2000-01-03', date '2000-01-03')) as r from instants a join instants b on a.id = b.id order by a.id
select sku, (sku, attrs) in (('b_1', '{}'), ('a-1', '{"w": 1, "color": "red"}'), ('x', 'null'), ('y', '[1]'), ('z', '2'), ('c\3', '{"color":null}'), ('v', '3'), ('w', '4.0')) as r from item order by sku
select sku, (sku, attrs) not in (('b_1', '{}'), ('a-1', '{"w": 1, "color": "red"}'), ('x', 'null'), ('y', '[1]'), ('z', '2'), ('c\3', '{"color":null}'), ('v', '3'), ('w', '4.0')) as r from item order by sku
select id, (i4, i8) in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (id, id), (i4 + 1, null)) as r from num order by id
select id, (i4 + 0, i8) in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51)) as r from num where id <> 3 order by id
select id from pair p join emp e on e.id = p.a where (p.a, p.b) in ((1, 0), (2, 1), (3, 2), (1, 3), (2, 4), (3, 5), (1, 6), (2, 7), (3, 8), (1, 9), (2, 10), (3, 11)) and (p.b, p.v) not in ((1, '1:1'), (2, '2:2'), (3, '3:3'), (1, '1:4'), (2, '2:1'), (3, '3:2'), (1, '1:3'), (2, '2:4'), (3, '3:1'), (1, '1:2'), (2, '2:3'), (3, '3:4')) order by id, p.b
select a, b from pair where (a, b) in ((1, 0), (2, 1), (3, 2), (1, 3), (2, 4), (3, 5), (1, 6), (2, 7), (3, 8), (1, 9), (2, 10), (3, 11)) order by a, b
update pair set v = 'in' where (a, b) in ((1, 0), (2, 1), (3, 2), (1, 3), (2, 4), (3, 5), (1, 6), (2, 7), (3, 8), (1, 9), (2, 10), (3, 11)) ;; select * from pair order by a, b
delete from pair where (a, v) not in ((1, 'Ada'), (2, 'Bob'), (3, 'Cyd'), (1, 'Dan'), (2, 'Eve'), (3, 'Fay'), (1, 'gus_x'), (2, 'x'), (3, 'y'), (1, 'z'), (2, 'Ada '), (3, 'its'), (4, null)) ;; select * from pair order by a, b
select case when (i4, i8) in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) then 'y' when (i4, i8) not in ((1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) then 'n' end as r, count(*) from num group by 1 order by 1
select id, (i4, i8) = any (values (1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51)) as r from num order by id
select id, (i4, i8) <> all (values (1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51)) as r from num order by id
select id, (i4, i8) in (values (1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51)) as r from num order by id
select id, (i4, i8) not in (values (1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51)) as r from num order by id
select id, (i4, i8) = some (values (1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51)) as r from num order by id
select id, (i4, i8) <> any (values (1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51)) as r from num order by id
select id, (i4, i8) = all (values (1, 1), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51)) as r from num order by id
select id, (i4, i8) = any (values (1::int, 1::bigint), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) as r from num order by id
select id, (i4, i8) <> all (values (1::int, 1::bigint), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) as r from num order by id
select id, (i4, i8) in (values (1::int, 1::bigint), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) as r from num order by id
select id, (i4, i8) not in (values (1::int, 1::bigint), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) as r from num order by id
select id, (i4, i8) = some (values (1::int, 1::bigint), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) as r from num order by id
select id, (i4, i8) <> any (values (1::int, 1::bigint), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) as r from num order by id
select id, (i4, i8) = all (values (1::int, 1::bigint), (100, 1000), (1000, 4), (0, 0), (-100, -1000), (3, 4), (4, 100), (7, 7), (-7, 9223372036854775807), (2147483647, 2147483647), (50, 50), (51, 51), (null, 1000), (7, null)) as r from num order by id
select id, (dept, boss) in (select dept, boss from emp) as r from emp order by id
select id, (dept, boss) not in (select dept, boss from emp) as r from emp order by id
select id, (dept, boss) in (select dept, boss from emp where boss is not null and dept is not null) as r from emp order by id
select id, (dept, boss) not in (select dept, boss from emp where boss is not null and dept is not null) as r from emp order by id
select id, (dept, boss) in (select 1, 1 where false) as r from emp order by id
select id, (dept, boss) not in (select 1, 1 where false) as r from emp order by id
select id, (dept, boss) in (select null::int, null::int) as r from emp order by id
select id, (dept, boss) not in (select null::int, null::int) as r from emp order by id
select id, (dept, boss) in (select id, dept from emp where dept is null) as r from emp order by id
select id, (dept, boss) not in (select id, dept from emp where dept is null) as r from emp order by id
select e.id, (e.dept, e.boss) in (select s.emp, e.boss from sale s where s.id < 5) as r from emp e order by e.id
select id, (n, name) in (select budget, 'x' from dept) as r from num join dept using (id) order by id
select id, (kind, qty) not in (select kind, emp from sale where id < 20) as r from sale order by id
select id, (f8, n) in (select f4, n2 from num) as r from num order by id
select id, i4 = 1 or i4 = 100 or i4 = 1000 or i4 = 0 or i4 = -100 or i4 = 3 or i4 = 4 or i4 = 7 or i4 = -7 or i4 = 2147483647 or i4 = 50 or i4 = 51 as r from num order by id
select id, i4 <> 1 and i4 <> 100 and i4 <> 1000 and i4 <> 0 and i4 <> -100 and i4 <> 3 and i4 <> 4 and i4 <> 7 and i4 <> -7 and i4 <> 2147483647 and i4 <> 50 and i4 <> 51 as r from num order by id
select id, i4 = 1 or i4 = 100 or i4 = 1000 or i4 = 0 or i4 = -100 or i4 = 3 or i4 = 4 or i4 = 7 or i4 = -7 or i4 = 2147483647 or i4 = 50 or i4 = 51 or i4 = null as r from num order by id
select id, i4 <> 1 and i4 <> 100 and i4 <> 1000 and i4 <> 0 and i4 <> -100 and i4 <> 3 and i4 <> 4 and i4 <> 7 and i4 <> -7 and i4 <> 2147483647 and i4 <> 50 and i4 <> 51 and i4 <> null as r from num order by id
select id, i4 = 1 or i4 = 100 or i4 = 1000 or i4 = 0 or i4 = -100 or i4 = 3 or i4 = 4 or i4 = 7 or i4 = -7 or i4 = 2147483647 or i4 = 50 or i4 = 51 or id = 2 or i4 is null as r from num order by id
select a.id from num a join dept d on d.id = a.id where a.i4 = 1 or a.i4 = 100 or a.i4 = 1000 or a.i4 = 0 or a.i4 = -100 or a.i4 = 3 or a.i4 = 4 or a.i4 = 7 or a.i4 = -7 or a.i4 = 2147483647 or a.i4 = 50 or a.i4 = 51 order by a.id
select id, i8 = 1 or i8 = 1000 or i8 = 4 or i8 = 0 or i8 = -1000 or i8 = 4 or i8 = 100 or i8 = 7 or i8 = 9223372036854775807 or i8 = 2147483647 or i8 = 50 or i8 = 51 as r from num order by id
select id, i8 <> 1 and i8 <> 1000 and i8 <> 4 and i8 <> 0 and i8 <> -1000 and i8 <> 4 and i8 <> 100 and i8 <> 7 and i8 <> 9223372036854775807 and i8 <> 2147483647 and i8 <> 50 and i8 <> 51 as r from num order by id
select id, i8 = 1 or i8 = 1000 or i8 = 4 or i8 = 0 or i8 = -1000 or i8 = 4 or i8 = 100 or i8 = 7 or i8 = 9223372036854775807 or i8 = 2147483647 or i8 = 50 or i8 = 51 or i8 = null as r from num order by id
select id, i8 <> 1 and i8 <> 1000 and i8 <> 4 and i8 <> 0 and i8 <> -1000 and i8 <> 4 and i8 <> 100 and i8 <> 7 and i8 <> 9223372036854775807 and i8 <> 2147483647 and i8 <> 50 and i8 <> 51 and i8 <> null as r from num order by id
select id, i8 = 1 or i8 = 1000 or i8 = 4 or i8 = 0 or i8 = -1000 or i8 = 4 or i8 = 100 or i8 = 7 or i8 = 9223372036854775807 or i8 = 2147483647 or i8 = 50 or i8 = 51 or id = 2 or i8 is null as r from num order by id
select a.id from num a join dept d on d.id = a.id where a.i8 = 1 or a.i8 = 1000 or a.i8 = 4 or a.i8 = 0 or a.i8 = -1000 or a.i8 = 4 or a.i8 = 100 or a.i8 = 7 or a.i8 = 9223372036854775807 or a.i8 = 2147483647 or a.i8 = 50 or a.i8 = 51 order by a.id
select id, n = 1 or n = 2.50 or n = 1e-30 or n = 0 or n = -2.50 or n = 2.5 or n = 0.1 or n = 'NaN' or n = -0.0 or n = 3 or n = 123456789012345678901234567890.123 or n = 7 as r from num order by id
select id, n <> 1 and n <> 2.50 and n <> 1e-30 and n <> 0 and n <> -2.50 and n <> 2.5 and n <> 0.1 and n <> 'NaN' and n <> -0.0 and n <> 3 and n <> 123456789012345678901234567890.123 and n <> 7 as r from num order by id
select id, n = 1 or n = 2.50 or n = 1e-30 or n = 0 or n = -2.50 or n = 2.5 or n = 0.1 or n = 'NaN' or n = -0.0 or n = 3 or n = 123456789012345678901234567890.123 or n = 7 or n = null as r from num order by id
select id, n <> 1 and n <> 2.50 and n <> 1e-30 and n <> 0 and n <> -2.50 and n <> 2.5 and n <> 0.1 and n <> 'NaN' and n <> -0.0 and n <> 3 and n <> 123456789012345678901234567890.123 and n <> 7 and n <> null as r from num order by id
select id, n = 1 or n = 2.50 or n = 1e-30 or n = 0 or n = -2.50 or n = 2.5 or n = 0.1 or n = 'NaN' or n = -0.0 or n = 3 or n = 123456789012345678901234567890.123 or n = 7 or id = 2 or n is null as r from num order by id
select a.id from num a join dept d on d.id = a.id where a.n = 1 or a.n = 2.50 or a.n = 1e-30 or a.n = 0 or a.n = -2.50 or a.n = 2.5 or a.n = 0.1 or a.n = 'NaN' or a.n = -0.0 or a.n = 3 or a.n = 123456789012345678901234567890.123 or a.n = 7 order by a.id
select id, f8 = '1' or f8 = 0.1 or f8 = 'Infinity' or f8 = 0 or f8 = -0.1 or f8 = 'NaN' or f8 = 1.0 or f8 = 2 or f8 = -0.0 or f8 = 1e-30 or f8 = 7 or f8 = 1.7e308 as r from num order by id
select id, f8 <> '1' and f8 <> 0.1 and f8 <> 'Infinity' and f8 <> 0 and f8 <> -0.1 and f8 <> 'NaN' and f8 <> 1.0 and f8 <> 2 and f8 <> -0.0 and f8 <> 1e-30 and f8 <> 7 and f8 <> 1.7e308 as r from num order by id
select id, f8 = '1' or f8 = 0.1 or f8 = 'Infinity' or f8 = 0 or f8 = -0.1 or f8 = 'NaN' or f8 = 1.0 or f8 = 2 or f8 = -0.0 or f8 = 1e-30 or f8 = 7 or f8 = 1.7e308 or f8 = null as r from num order by id
select id, f8 <> '1' and f8 <> 0.1 and f8 <> 'Infinity' and f8 <> 0 and f8 <> -0.1 and f8 <> 'NaN' and f8 <> 1.0 and f8 <> 2 and f8 <> -0.0 and f8 <> 1e-30 and f8 <> 7 and f8 <> 1.7e308 and f8 <> null as r from num order by id
select id, f8 = '1' or f8 = 0.1 or f8 = 'Infinity' or f8 = 0 or f8 = -0.1 or f8 = 'NaN' or f8 = 1.0 or f8 = 2 or f8 = -0.0 or f8 = 1e-30 or f8 = 7 or f8 = 1.7e308 or id = 2 or f8 is null as r from num order by id
select a.id from num a join dept d on d.id = a.id where a.f8 = '1' or a.f8 = 0.1 or a.f8 = 'Infinity' or a.f8 = 0 or a.f8 = -0.1 or a.f8 = 'NaN' or a.f8 = 1.0 or a.f8 = 2 or a.f8 = -0.0 or a.f8 = 1e-30 or a.f8 = 7 or a.f8 = 1.7e308 order by a.id
select id, name = 'Ada' or name = 'Bob' or name = 'Cyd' or name = 'Dan' or name = 'Eve' or name = 'Fay' or name = 'gus_x' or name = 'x' or name = 'y' or name = 'z' or name = 'Ada ' or name = 'its' as r from emp order by id
select id, name <> 'Ada' and name <> 'Bob' and name <> 'Cyd' and name <> 'Dan' and name <> 'Eve' and name <> 'Fay' and name <> 'gus_x' and name <> 'x' and name <> 'y' and name <> 'z' and name <> 'Ada ' and name <> 'its' as r from emp order by id
select id, name = 'Ada' or name = 'Bob' or name = 'Cyd' or name = 'Dan' or name = 'Eve' or name = 'Fay' or name = 'gus_x' or name = 'x' or name = 'y' or name = 'z' or name = 'Ada ' or name = 'its' or name = null as r from emp order by id
select id, name <> 'Ada' and name <> 'Bob' and name <> 'Cyd' and name <> 'Dan' and name <> 'Eve' and name <> 'Fay' and name <> 'gus_x' and name <> 'x' and name <> 'y' and name <> 'z' and name <> 'Ada ' and name <> 'its' and name <> null as r from emp order by id
select id, name = 'Ada' or name = 'Bob' or name = 'Cyd' or name = 'Dan' or name = 'Eve' or name = 'Fay' or name = 'gus_x' or name = 'x' or name = 'y' or name = 'z' or name = 'Ada ' or name = 'its' or id = 2 or name is null as r from emp order by id
select a.id from emp a join dept d on d.id = a.id where a.name = 'Ada' or a.name = 'Bob' or a.name = 'Cyd' or a.name = 'Dan' or a.name = 'Eve' or a.name = 'Fay' or a.name = 'gus_x' or a.name = 'x' or a.name = 'y' or a.name = 'z' or a.name = 'Ada ' or a.name = 'its' order by a.id
select id, (i4 = 1 and i8 = 1) or (i4 = 100 and i8 = 1000) or (i4 = 1000 and i8 = 4) or (i4 = 0 and i8 = 0) or (i4 = -100 and i8 = -1000) or (i4 = 3 and i8 = 4) or (i4 = 4 and i8 = 100) or (i4 = 7 and i8 = 7) or (i4 = -7 and i8 = 9223372036854775807) or (i4 = 2147483647 and i8 = 2147483647) or (i4 = 50 and i8 = 50) or (i4 = 51 and i8 = 51) as r from num order by id
select id, (i4 <> 1 or i8 <> 1) and (i4 <> 100 or i8 <> 1000) and (i4 <> 1000 or i8 <> 4) and (i4 <> 0 or i8 <> 0) and (i4 <> -100 or i8 <> -1000) and (i4 <> 3 or i8 <> 4) and (i4 <> 4 or i8 <> 100) and (i4 <> 7 or i8 <> 7) and (i4 <> -7 or i8 <> 9223372036854775807) and (i4 <> 2147483647 or i8 <> 2147483647) and (i4 <> 50 or i8 <> 50) and (i4 <> 51 or i8 <> 51) as r from num order by id
select id, (i4 = 1 and (i8 = 1 or n > 2)) or (i4 = 100 and (i8 = 1000 or n > 2)) or (i4 = 1000 and (i8 = 4 or n > 2)) or (i4 = 0 and (i8 = 0 or n > 2)) or (i4 = -100 and (i8 = -1000 or n > 2)) or (i4 = 3 and (i8 = 4 or n > 2)) or (i4 = 4 and (i8 = 100 or n > 2)) or (i4 = 7 and (i8 = 7 or n > 2)) or (i4 = -7 and (i8 = 9223372036854775807 or n > 2)) or (i4 = 2147483647 and (i8 = 2147483647 or n > 2)) or (i4 = 50 and (i8 = 50 or n > 2)) or (i4 = 51 and (i8 = 51 or n > 2)) as r from num order by id
select id, id <> 4 and 10 / i4 = 1 or id <> 4 and 10 / i4 = 100 or id <> 4 and 10 / i4 = 1000 or id <> 4 and 10 / i4 = 0 or id <> 4 and 10 / i4 = -100 or id <> 4 and 10 / i4 = 3 or id <> 4 and 10 / i4 = 4 or id <> 4 and 10 / i4 = 7 or id <> 4 and 10 / i4 = -7 or id <> 4 and 10 / i4 = 2147483647 or id <> 4 and 10 / i4 = 50 or id <> 4 and 10 / i4 = 51 as r from num order by id
select id, i4 = 0 or 10 / i4 = 1 or 10 / i4 = 100 or 10 / i4 = 1000 or 10 / i4 = 0 or 10 / i4 = -100 or 10 / i4 = 3 or 10 / i4 = 4 or 10 / i4 = 7 or 10 / i4 = -7 or 10 / i4 = 2147483647 or 10 / i4 = 50 or 10 / i4 = 51 as r from num order by id
select a.id, a.i4 = 0 or 10 / a.i4 = 1 or 10 / a.i4 = 100 or 10 / a.i4 = 1000 or 10 / a.i4 = 0 or 10 / a.i4 = -100 or 10 / a.i4 = 3 or 10 / a.i4 = 4 or 10 / a.i4 = 7 or 10 / a.i4 = -7 or 10 / a.i4 = 2147483647 or 10 / a.i4 = 50 or 10 / a.i4 = 51 as r from num a join num b on a.id = b.id order by a.id
select id, (i4 = 1 and 10 / i4 = 1) or (i4 = 100 and 10 / i4 = 1000) or (i4 = 1000 and 10 / i4 = 4) or (i4 = 5 and 10 / i4 = 0) or (i4 = -100 and 10 / i4 = -1000) or (i4 = 3 and 10 / i4 = 4) or (i4 = 4 and 10 / i4 = 100) or (i4 = 7 and 10 / i4 = 7) or (i4 = -7 and 10 / i4 = 9223372036854775807) or (i4 = 2147483647 and 10 / i4 = 2147483647) or (i4 = 50 and 10 / i4 = 50) or (i4 = 51 and 10 / i4 = 51) as r from num order by id
select (1, 'a') in ((0, 'Ada'), (1, 'Bob'), (2, 'Cyd'), (3, 'Dan'), (4, 'Eve'), (5, 'Fay'), (6, 'gus_x'), (7, 'x'), (8, 'y'), (9, 'z'), (10, 'Ada '), (11, 'its')), (null, 'a') in ((0, 'Ada'), (1, 'Bob'), (2, 'Cyd'), (3, 'Dan'), (4, 'Eve'), (5, 'Fay'), (6, 'gus_x'), (7, 'x'), (8, 'y'), (9, 'z'), (10, 'Ada '), (11, 'its')), (1, null) not in ((0, 'Ada'), (1, 'Bob'), (2, 'Cyd'), (3, 'Dan'), (4, 'Eve'), (5, 'Fay'), (6, 'gus_x'), (7, 'x'), (8, 'y'), (9, 'z'), (10, 'Ada '), (11, 'its')), (50, null) not in ((0, 'Ada'), (1, 'Bob'), (2, 'Cyd'), (3, 'Dan'), (4, 'Eve'), (5, 'Fay'), (6, 'gus_x'), (7, 'x'), (8, 'y'), (9, 'z'), (10, 'Ada '), (11, 'its'))
select id from emp where (dept, name) in ((1, 'Ada'), (2, 'Bob'), (3, 'Cyd'), (1, 'Dan'), (2, 'Eve'), (3, 'Fay'), (1, 'gus_x'), (2, 'x'), (3, 'y'), (1, 'z'), (2, 'Ada '), (3, 'its'), (1, 2, 3))
select id from emp where (dept, name) in ((1, 0), (2, 1), (3, 2), (1, 3), (2, 4), (3, 5), (1, 6), (2, 7), (3, 8), (1, 9), (2, 10), (3, 11))
select id from emp where (dept, name) in (('Ada', 'Ada'), ('Bob', 'Bob'), ('Cyd', 'Cyd'), ('Dan', 'Dan'), ('Eve', 'Eve'), ('Fay', 'Fay'), ('gus_x', 'gus_x'), ('x', 'x'), ('y', 'y'), ('z', 'z'), ('Ada ', 'Ada '), ('its', 'its'))
select id, (id, i4) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453)) as r from num order by id
select id, (id, i4) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (2.5, 0.1)) as r from num order by id
select id, (id, i4) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (0.1, '-0.1')) as r from num order by id
select id, (id, i4) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (7, null), (null, 100)) as r from num order by id
select id, (i2, f8) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453)) as r from num order by id
select id, (i2, f8) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (2.5, 0.1)) as r from num order by id
select id, (i2, f8) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (0.1, '-0.1')) as r from num order by id
select id, (i2, f8) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (7, null), (null, 100)) as r from num order by id
select id, (f4, n) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453)) as r from num order by id
select id, (f4, n) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (2.5, 0.1)) as r from num order by id
select id, (f4, n) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (0.1, '-0.1')) as r from num order by id
select id, (f4, n) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (7, null), (null, 100)) as r from num order by id
select id, (n2, i8) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453)) as r from num order by id
select id, (n2, i8) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (2.5, 0.1)) as r from num order by id
select id, (n2, i8) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (0.1, '-0.1')) as r from num order by id
select id, (n2, i8) in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (7, null), (null, 100)) as r from num order by id
select id, (id, i4) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453)) as r from num order by id
select id, (id, i4) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (2.5, 0.1)) as r from num order by id
select id, (id, i4) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (0.1, '-0.1')) as r from num order by id
select id, (id, i4) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (7, null), (null, 100)) as r from num order by id
select id, (i2, f8) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453)) as r from num order by id
select id, (i2, f8) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (2.5, 0.1)) as r from num order by id
select id, (i2, f8) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (0.1, '-0.1')) as r from num order by id
select id, (i2, f8) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (7, null), (null, 100)) as r from num order by id
select id, (f4, n) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453)) as r from num order by id
select id, (f4, n) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (2.5, 0.1)) as r from num order by id
select id, (f4, n) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (0.1, '-0.1')) as r from num order by id
select id, (f4, n) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (7, null), (null, 100)) as r from num order by id
select id, (n2, i8) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453)) as r from num order by id
select id, (n2, i8) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (2.5, 0.1)) as r from num order by id
select id, (n2, i8) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (0.1, '-0.1')) as r from num order by id
select id, (n2, i8) not in ((0, -100), (1, -93), (2, -86), (3, -79), (4, -72), (5, -65), (6, -58), (7, -51), (8, -44), (0, -37), (1, -30), (2, -23), (3, -16), (4, -9), (5, -2), (6, 5), (7, 12), (8, 19), (0, 26), (1, 33), (2, 40), (3, 47), (4, 54), (5, 61), (6, 68), (7, 75), (8, 82), (0, 89), (1, 96), (2, 103), (3, 110), (4, 117), (5, 124), (6, 131), (7, 138), (8, 145), (0, 152), (1, 159), (2, 166), (3, 173), (4, 180), (5, 187), (6, 194), (7, 201), (8, 208), (0, 215), (1, 222), (2, 229), (3, 236), (4, 243), (5, 250), (6, 257), (7, 264), (8, 271), (0, 278), (1, 285), (2, 292), (3, 299), (4, 306), (5, 313), (6, 320), (7, 327), (8, 334), (0, 341), (1, 348), (2, 355), (3, 362), (4, 369), (5, 376), (6, 383), (7, 390), (8, 397), (0, 404), (1, 411), (2, 418), (3, 425), (4, 432), (5, 439), (6, 446), (7, 453), (7, null), (null, 100)) as r from num order by id
select id, n in (0.0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0,1.1,1.2,1.3,1.4,1.5,1.6,1.7,1.8,1.9,2.0,2.1,2.2,2.3,2.4,2.5,2.6,2.7,2.8,2.9,3.0,3.1,3.2,3.3,3.4,3.5,3.6,3.7,3.8,3.9,4.0,4.1,4.2,4.3,4.4,4.5,4.6,4.7,4.8,4.9,5.0,5.1,5.2,5.3,5.4,5.5,5.6,5.7,5.8,5.9,6.0,6.1,6.2,6.3,6.4,6.5,6.6,6.7,6.8,6.9) as n, f4 in (0.0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0,1.1,1.2,1.3,1.4,1.5,1.6,1.7,1.8,1.9,2.0,2.1,2.2,2.3,2.4,2.5,2.6,2.7,2.8,2.9,3.0,3.1,3.2,3.3,3.4,3.5,3.6,3.7,3.8,3.9,4.0,4.1,4.2,4.3,4.4,4.5,4.6,4.7,4.8,4.9,5.0,5.1,5.2,5.3,5.4,5.5,5.6,5.7,5.8,5.9,6.0,6.1,6.2,6.3,6.4,6.5,6.6,6.7,6.8,6.9) as f4, f8 in (0.0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0,1.1,1.2,1.3,1.4,1.5,1.6,1.7,1.8,1.9,2.0,2.1,2.2,2.3,2.4,2.5,2.6,2.7,2.8,2.9,3.0,3.1,3.2,3.3,3.4,3.5,3.6,3.7,3.8,3.9,4.0,4.1,4.2,4.3,4.4,4.5,4.6,4.7,4.8,4.9,5.0,5.1,5.2,5.3,5.4,5.5,5.6,5.7,5.8,5.9,6.0,6.1,6.2,6.3,6.4,6.5,6.6,6.7,6.8,6.9) as f8, i4 in (0.0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0,1.1,1.2,1.3,1.4,1.5,1.6,1.7,1.8,1.9,2.0,2.1,2.2,2.3,2.4,2.5,2.6,2.7,2.8,2.9,3.0,3.1,3.2,3.3,3.4,3.5,3.6,3.7,3.8,3.9,4.0,4.1,4.2,4.3,4.4,4.5,4.6,4.7,4.8,4.9,5.0,5.1,5.2,5.3,5.4,5.5,5.6,5.7,5.8,5.9,6.0,6.1,6.2,6.3,6.4,6.5,6.6,6.7,6.8,6.9) as i4, n2 not in (0.0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1.0,1.1,1.2,1.3,1.4,1.5,1.6,1.7,1.8,1.9,2.0,2.1,2.2,2.3,2.4,2.5,2.6,2.7,2.8,2.9,3.0,3.1,3.2,3.3,3.4,3.5,3.6,3.7,3.8,3.9,4.0,4.1,4.2,4.3,4.4,4.5,4.6,4.7,4.8,4.9,5.0,5.1,5.2,5.3,5.4,5.5,5.6,5.7,5.8,5.9,6.0,6.1,6.2,6.3,6.4,6.5,6.6,6.7,6.8,6.9, 1e2, null) as n2 from num order by id
select id, name in ('it''s0','it''s1','it''s2','it''s3','it''s4','it''s5','it''s6','it''s7','it''s8','it''s9','it''s10','it''s11','it''s12','it''s13','it''s14','it''s15','it''s16','it''s17','it''s18','it''s19','it''s20','it''s21','it''s22','it''s23','it''s24','it''s25','it''s26','it''s27','it''s28','it''s29','it''s30','it''s31','it''s32','it''s33','it''s34','it''s35','it''s36','it''s37','it''s38','it''s39','it''s40','it''s41','it''s42','it''s43','it''s44','it''s45','it''s46','it''s47','it''s48','it''s49','it''s50','it''s51','it''s52','it''s53','it''s54','it''s55','it''s56','it''s57','it''s58','it''s59','it''s60','it''s61','it''s62','it''s63','it''s64','it''s65','it''s66','it''s67','it''s68','it''s69', 'Ada', '''', '') as r, note in ('it''s0','it''s1','it''s2','it''s3','it''s4','it''s5','it''s6','it''s7','it''s8','it''s9','it''s10','it''s11','it''s12','it''s13','it''s14','it''s15','it''s16','it''s17','it''s18','it''s19','it''s20','it''s21','it''s22','it''s23','it''s24','it''s25','it''s26','it''s27','it''s28','it''s29','it''s30','it''s31','it''s32','it''s33','it''s34','it''s35','it''s36','it''s37','it''s38','it''s39','it''s40','it''s41','it''s42','it''s43','it''s44','it''s45','it''s46','it''s47','it''s48','it''s49','it''s50','it''s51','it''s52','it''s53','it''s54','it''s55','it''s56','it''s57','it''s58','it''s59','it''s60','it''s61','it''s62','it''s63','it''s64','it''s65','it''s66','it''s67','it''s68','it''s69') from emp left join sale using (id) order by id
select distinct * from (values (0.50, 'a''0', null), (1.50, 'a''1', null), (2.50, 'a''2', null), (3.50, 'a''3', null), (4.50, 'a''4', null), (5.50, 'a''5', null), (6.50, 'a''6', null), (7.50, 'a''7', null), (8.50, 'a''8', null), (9.50, 'a''9', null), (10.50, 'a''10', null), (11.50, 'a''11', null), (12.50, 'a''12', null), (13.50, 'a''13', null), (14.50, 'a''14', null), (15.50, 'a''15', null), (16.50, 'a''16', null), (17.50, 'a''17', null), (18.50, 'a''18', null), (19.50, 'a''19', null), (20.50, 'a''20', null), (21.50, 'a''21', null), (22.50, 'a''22', null), (23.50, 'a''23', null), (24.50, 'a''24', null), (25.50, 'a''25', null), (26.50, 'a''26', null), (27.50, 'a''27', null), (28.50, 'a''28', null), (29.50, 'a''29', null), (30.50, 'a''30', null), (31.50, 'a''31', null), (32.50, 'a''32', null), (33.50, 'a''33', null), (34.50, 'a''34', null), (35.50, 'a''35', null), (36.50, 'a''36', null), (37.50, 'a''37', null), (38.50, 'a''38', null), (39.50, 'a''39', null), (40.50, 'a''40', null), (41.50, 'a''41', null), (42.50, 'a''42', null), (43.50, 'a''43', null), (44.50, 'a''44', null), (45.50, 'a''45', null), (46.50, 'a''46', null), (47.50, 'a''47', null), (48.50, 'a''48', null), (49.50, 'a''49', null), (50.50, 'a''50', null), (51.50, 'a''51', null), (52.50, 'a''52', null), (53.50, 'a''53', null), (54.50, 'a''54', null), (55.50, 'a''55', null), (56.50, 'a''56', null), (57.50, 'a''57', null), (58.50, 'a''58', null), (59.50, 'a''59', null), (60.50, 'a''60', null), (61.50, 'a''61', null), (62.50, 'a''62', null), (63.50, 'a''63', null), (64.50, 'a''64', null), (65.50, 'a''65', null), (66.50, 'a''66', null), (67.50, 'a''67', null), (68.50, 'a''68', null), (69.50, 'a''69', null)) v (x, y, z) where x < 5 order by x
