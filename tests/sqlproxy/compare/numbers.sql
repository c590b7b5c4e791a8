-- numbers and casts
select 7 / 2, -7 / 2, 7 % 3, -7 % 3, 7 % -3, 7.0 / 2, 7 / 2.0, 2 / 3::numeric
select 1 / 0
select 1 % 0
select 1.0 / 0
select 1::float8 / 0
select 2147483647 + 1
select 2147483647::int8 + 1, 9223372036854775807 - 1
select 9223372036854775807 + 1
select -9223372036854775808, -(-9223372036854775807)
select -(-2147483648)::int4
select abs((-32768)::int2)
select 32767::int2 + 1::int2
select 32768::int2
select 2147483648::int4
select 9223372036854775808
select 9223372036854775808::int8
select 1e309::float8
select 1e39::float4
select '1e400'::float8
select 'abc'::int
select '12abc'::numeric
select ''::int
select ' 42 '::int, '+7'::int, '-0'::int, '0x1'::text
select '1.5'::int
select 1.5::int, 2.5::int, -1.5::int, 2.5::float8::int, 3.5::float8::int, 0.5::float4::int2
select 'NaN'::float8::int
select 'Infinity'::numeric, 'NaN'::numeric, '-inf'::float4
select 123.456::numeric(5,2), 123.456::numeric(6,0), 123.456::numeric(3), 0.005::numeric(3,2)
select 1234.5::numeric(5,2)
select 99.995::numeric(4,2)
select 12345::numeric(3,-2), 12355::numeric(3,-2)
select 1.10 + 2.205, 1.10 * 2.205, 1.00 - 1, -1.50, 10.0 % 3.5, 10 / 3.0
select 0.1 + 0.2 = 0.3, 0.1::float8 + 0.2::float8 = 0.3::float8, 0.1::float4 = 0.1::float8
select 0.1::float8 + 0.2::float8, 0.1::float4 + 0.2::float4, 1::float4 / 3, 1::float8 / 3, 1e15::float8, 1e16::float8, 1e-5::float8, 123456789::float4
select 2 ^ 3, 2 ^ -1, 2.0 ^ 0.5, 2 ^ 0.5::numeric, (-8) ^ (1.0 / 3)
select 0 ^ -1
select |/ 2, ||/ 27, @ -3.5, 5 ! ;; select 1
select sqrt(2), sqrt(2::numeric), cbrt(27), exp(1), exp(1.0), ln(10), ln(10.0), log(100), log(2, 8), log10(1000)
select sqrt(-1)
select ln(0)
select ln(-1.0)
select power(2, 10), power(2.5, 2), power(2::float8, 0.5), pow(9, 0.5)
select exp(1000)
select round(2.5), round(-2.5), round(2.567, 2), round(1234.567, -2), round(2.5::float8), round(0.5::float8)
select round(2.567::float8, 2)
select trunc(2.567, 1), trunc(-2.567), trunc(1234, -2), ceil(1.1), ceil(-1.1), floor(-1.1), ceiling(2), floor(2.0)
select sign(-2.5), sign(0), sign(3::float8), abs(-5), abs(-5.50), mod(7, 3), mod(-7.5, 2), div(7.5, 2), div(-7, 2)
select gcd(12, 18), lcm(4, 6), gcd(0, 5), factorial(20), width_bucket(5.35, 0.024, 10.06, 5), width_bucket(3, 1, 10, 3)
select factorial(-1)
select width_bucket(1, 1, 1, 2)
select degrees(pi()), radians(180), sin(0), cos(0), tan(0), atan2(1, 1), asin(1), acos(1), cot(1)
select asin(2)
select 5 & 3, 5 | 3, 5 # 3, ~5, 1 << 4, 256 >> 4, -1 >> 1, 1::int8 << 40
select 1.5 & 1
select greatest(1, 2.5, null), least(1, 2.5, null), greatest(null, null), greatest('a', 'b'), least(1::int8, 2)
select greatest(1, 'x')
select coalesce(null, 1, 2.5), coalesce(null, null), nullif(1, 1), nullif(1, 2.5), nullif('a', 'b')
select coalesce(1, 'x')
select case when 1 = 1 then 1 else 2.5 end, case 3 when 1 then 'a' when 3 then 'c' end, case when null then 1 end
select case when true then 1 else 'x' end
select case 1 when 'a' then 1 end
select scale(1.230), min_scale(1.230), trim_scale(1.230), 1.230::text
select to_char(1234.5, '9,999.99'), to_char(-1234.5, '9,999.99MI'), to_char(0.5, '0.00'), to_char(12, '0000'), to_char(12, 'FM999'), to_char(1234, '999')
select to_char(-5, '99PR'), to_char(5, 'S99'), to_char(1.5, 'FM90.099'), to_char(1e6::float8, '9999999.9'), to_char(12345678, '99,999,999'), to_char(0, '99')
select to_char(485, 'RN'), to_char(0.0004859, '9.99EEEE')
select to_number('1,234.5', '9,999.9'), to_number('-12', 'S99'), to_number('12-', '99MI')
select to_hex(255), to_hex(-1), to_hex(4294967296)
select 42::text, 42::char, 42::varchar(1), 4.20::text, 1e10::float8::text, true::text, false::int, 1::bool, 'yes'::bool, 'off'::bool
select 'maybe'::bool
select 2::bool, 0::int::bool
select 2.0::bool
select true + 1
select true and null, false and null, true or null, null or false, not null::bool
select 1 = true
select 1 < 2 < 3
select 1 between 0 and 2, 1 not between symmetric 2 and 0, null between 1 and 2
select 1 in (1, 2.0, null), 3 in (1, null), 3 not in (1, null), 'a' in ('a', 'b')
select 1 in ('1', '2'), 1 in (1, 'x')
select 1 is distinct from null, null is distinct from null, 1 is not distinct from 1
select null = null, null <> 1, null is null, (1, null) is null, (null, null) is null, (1, null) is not null, row(1, 2) is not null
select (1, 2) = (1, 2), (1, 2) < (1, 3), (1, null) = (1, 2), (1, 2) = (2, null), row(1, 'a') <> row(1, 'b')
select (1, 2) = (1, 2, 3)
select 1.0 = 1, 1.0::text = '1', '1' = 1, '1.0' = 1.00
select '1.0' = 1
select 'a' = 1
select 'abc' + 1
select 'abc' * 2.0
select '3' + 4, '3' * 4.5, 3 || 'a', 'a' || 3.50, 3 || '4'
select 3 || 4
select 'a' || null, 'a' || true, 'x' || date '2024-01-01'
select pg_typeof(1), pg_typeof(1.0), pg_typeof(3000000000), pg_typeof('a'), pg_typeof(null), pg_typeof(1e5), pg_typeof(1 + 1.0), pg_typeof(1::int2 + 1)
select pg_typeof(1 / 2), pg_typeof(1.0 / 2), pg_typeof(2 ^ 2), pg_typeof(sqrt(4)), pg_typeof(round(2.5)), pg_typeof(round(2.5::float8)), pg_typeof(abs(1::int2)), pg_typeof(mod(5::int8, 2))
select pg_typeof(sum(i2)), pg_typeof(sum(i4)), pg_typeof(sum(i8)), pg_typeof(avg(i4)), pg_typeof(sum(f4)), pg_typeof(avg(f4)), pg_typeof(count(*)) from num
select i2 + i4, i4 + i8, i8 + n, i4 + f4, n + f8, i2 * i2 from num where id in (1, 6, 7) order by id
select i2 * i2 from num where id = 3
select i2 * i2::int2 from num where id = 2
select i4 * i4 from num where id = 3
select i4 - 1 from num where id = 2
select -i8 from num where id = 2
select i8 / -1 from num where id = 2
select i4 / i2, i4 % i2 from num where id in (6, 7) order by id
select i4 / i2 from num where id = 4
select n / n2, n * n2, round(n, 1), trunc(n, 1) from num where id in (1, 6, 7) order by id
select n2 * 1.5, n2 / 3, n2::int, n2::numeric(5,1) from num where id in (6, 7) order by id
select n2::numeric(4,2) from num order by id
select f4::text, f8::text, f4::float8, f8::float4, f4::numeric, f8::numeric from num where id in (1, 6) order by id
select f8::int from num where id = 3
select n::float8, n::int from num where id in (1, 6, 7) order by id
select n::int from num where id = 8
select n::int8 from num where id = 3
select i8::float8::int8 from num where id = 6
select i4::text || 'x', i4::varchar(2), i4::char(5) || '|' from num where id in (6, 7) order by id
select f8 = 'NaN', f4 = 'NaN', n = 'NaN', f8 > 1e308 from num where id = 8
select id from num order by n nulls first, id
select id from num order by f4 desc, id
select id, i4 > i2, i8 = i4, n < f8 from num order by id
select cast(1.5 as int), cast('7' as int8), int '5', float8 '2.5', numeric '1.50', bool 't', text 'x', int4(3.7), text(5)
select 1::foo
select cast(1 as varchar(0))
select '123456'::varchar(3), 'ab'::char(4) || '|', length('ab '::char(4)), 'abc'::char(2), 'abc'::"char"
select 1::int4::int2::int8, '7'::text::int, 7::text::char(1), 12::text::numeric(4,1)
select 0::oid, 4294967295::oid, -1::oid::int8
select 'a'::bytea, '\xdeadbeef'::bytea, 'a\\b'::bytea, '\x0'::bytea
select '11111111-2222-3333-4444-555555555555'::uuid, 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'::uuid, '{a0eebc999c0b4ef8bb6d6bb9bd380a11}'::uuid
select 'xyz'::uuid
select 1_000
select 0x1F
select 1.e3, .5, 5., 1e-3, 1E+2
select 5 = any (values (5), (6)), 5 > all (values (1), (2))
select random() between 0 and 1, setseed(0.5) is null
select num_nulls(1, null, null), num_nonnulls(1, null), 1 is null, not (1 is null)
select sum(x), avg(x) from (values (1::float4), (2.5), (null)) v(x)
select sum(x) from (values (9223372036854775807), (1)) v(x)
select sum(x) from (values ('Infinity'::float8), ('-Infinity')) v(x)
select sum(x), max(x), min(x) from (values ('NaN'::float8), (1)) v(x)
select sum(x), max(x), min(x) from (values ('NaN'::numeric), (1)) v(x)
select avg(x) from (values (1), (2), (2)) v(x)
select avg(x), sum(x) from (values (1.10), (2.205)) v(x)
select var_samp(x), stddev_samp(x) from (values (1), (2), (4)) v(x)
select bit_xor(x), bit_and(x) from (values (12), (10)) v(x)
