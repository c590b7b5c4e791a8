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
