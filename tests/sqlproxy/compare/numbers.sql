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
select ('NaN'::numeric) ^ ('NaN'::numeric), ('NaN'::numeric) ^ ('Infinity'::numeric), ('NaN'::numeric) ^ ('-Infinity'::numeric), ('NaN'::numeric) ^ (0::numeric), ('NaN'::numeric) ^ (-0.5::numeric), ('NaN'::numeric) ^ (0.5::numeric), ('NaN'::numeric) ^ (1::numeric), ('NaN'::numeric) ^ (-1::numeric), ('NaN'::numeric) ^ (2::numeric), ('NaN'::numeric) ^ (-3::numeric), ('Infinity'::numeric) ^ ('NaN'::numeric), ('Infinity'::numeric) ^ ('Infinity'::numeric), ('Infinity'::numeric) ^ ('-Infinity'::numeric), ('Infinity'::numeric) ^ (0::numeric)
select ('Infinity'::numeric) ^ (-0.5::numeric), ('Infinity'::numeric) ^ (0.5::numeric), ('Infinity'::numeric) ^ (1::numeric), ('Infinity'::numeric) ^ (-1::numeric), ('Infinity'::numeric) ^ (2::numeric), ('Infinity'::numeric) ^ (-3::numeric), ('-Infinity'::numeric) ^ ('NaN'::numeric), ('-Infinity'::numeric) ^ ('Infinity'::numeric), ('-Infinity'::numeric) ^ ('-Infinity'::numeric), ('-Infinity'::numeric) ^ (0::numeric), ('-Infinity'::numeric) ^ (1::numeric), ('-Infinity'::numeric) ^ (-1::numeric), ('-Infinity'::numeric) ^ (2::numeric), ('-Infinity'::numeric) ^ (-3::numeric)
select (0::numeric) ^ ('NaN'::numeric), (0::numeric) ^ ('Infinity'::numeric), (0::numeric) ^ (0::numeric), (0::numeric) ^ (0.5::numeric), (0::numeric) ^ (1::numeric), (0::numeric) ^ (2::numeric), (-0.5::numeric) ^ ('NaN'::numeric), (-0.5::numeric) ^ ('Infinity'::numeric), (-0.5::numeric) ^ ('-Infinity'::numeric), (-0.5::numeric) ^ (0::numeric), (-0.5::numeric) ^ (1::numeric), (-0.5::numeric) ^ (-1::numeric), (-0.5::numeric) ^ (2::numeric), (-0.5::numeric) ^ (-3::numeric)
select (0.5::numeric) ^ ('NaN'::numeric), (0.5::numeric) ^ ('Infinity'::numeric), (0.5::numeric) ^ ('-Infinity'::numeric), (0.5::numeric) ^ (0::numeric), (0.5::numeric) ^ (-0.5::numeric), (0.5::numeric) ^ (0.5::numeric), (0.5::numeric) ^ (1::numeric), (0.5::numeric) ^ (-1::numeric), (0.5::numeric) ^ (2::numeric), (0.5::numeric) ^ (-3::numeric), (1::numeric) ^ ('NaN'::numeric), (1::numeric) ^ ('Infinity'::numeric), (1::numeric) ^ ('-Infinity'::numeric), (1::numeric) ^ (0::numeric)
select (1::numeric) ^ (-0.5::numeric), (1::numeric) ^ (0.5::numeric), (1::numeric) ^ (1::numeric), (1::numeric) ^ (-1::numeric), (1::numeric) ^ (2::numeric), (1::numeric) ^ (-3::numeric), (-1::numeric) ^ ('NaN'::numeric), (-1::numeric) ^ ('Infinity'::numeric), (-1::numeric) ^ ('-Infinity'::numeric), (-1::numeric) ^ (0::numeric), (-1::numeric) ^ (1::numeric), (-1::numeric) ^ (-1::numeric), (-1::numeric) ^ (2::numeric), (-1::numeric) ^ (-3::numeric)
select (2::numeric) ^ ('NaN'::numeric), (2::numeric) ^ ('Infinity'::numeric), (2::numeric) ^ ('-Infinity'::numeric), (2::numeric) ^ (0::numeric), (2::numeric) ^ (-0.5::numeric), (2::numeric) ^ (0.5::numeric), (2::numeric) ^ (1::numeric), (2::numeric) ^ (-1::numeric), (2::numeric) ^ (2::numeric), (2::numeric) ^ (-3::numeric), (-3::numeric) ^ ('NaN'::numeric), (-3::numeric) ^ ('Infinity'::numeric), (-3::numeric) ^ ('-Infinity'::numeric), (-3::numeric) ^ (0::numeric)
select (-3::numeric) ^ (1::numeric), (-3::numeric) ^ (-1::numeric), (-3::numeric) ^ (2::numeric), (-3::numeric) ^ (-3::numeric)
select log('NaN'::numeric, 'NaN'::numeric), log('NaN'::numeric, 'Infinity'::numeric), log('NaN'::numeric, '-Infinity'::numeric), log('NaN'::numeric, 0::numeric), log('NaN'::numeric, -0.5::numeric), log('NaN'::numeric, 0.5::numeric), log('NaN'::numeric, 1::numeric), log('NaN'::numeric, -1::numeric), log('NaN'::numeric, 2::numeric), log('NaN'::numeric, -3::numeric), log('Infinity'::numeric, 'NaN'::numeric), log('Infinity'::numeric, 'Infinity'::numeric), log('Infinity'::numeric, 0.5::numeric), log('Infinity'::numeric, 1::numeric)
select log('Infinity'::numeric, 2::numeric), log('-Infinity'::numeric, 'NaN'::numeric), log(0::numeric, 'NaN'::numeric), log(-0.5::numeric, 'NaN'::numeric), log(0.5::numeric, 'NaN'::numeric), log(0.5::numeric, 'Infinity'::numeric), log(0.5::numeric, 0.5::numeric), log(0.5::numeric, 1::numeric), log(0.5::numeric, 2::numeric), log(1::numeric, 'NaN'::numeric), log(1::numeric, 'Infinity'::numeric), log(-1::numeric, 'NaN'::numeric), log(2::numeric, 'NaN'::numeric), log(2::numeric, 'Infinity'::numeric)
select log(2::numeric, 0.5::numeric), log(2::numeric, 1::numeric), log(2::numeric, 2::numeric), log(-3::numeric, 'NaN'::numeric)
select ln('NaN'::numeric), ln('Infinity'::numeric), ln(0.5::numeric), ln(1::numeric), ln(2::numeric), log('NaN'::numeric), log('Infinity'::numeric), log(0.5::numeric), log(1::numeric), log(2::numeric), log10('NaN'::numeric), log10('Infinity'::numeric), log10(0.5::numeric), log10(1::numeric)
select log10(2::numeric), sign('NaN'::numeric), sign('Infinity'::numeric), sign('-Infinity'::numeric), sign(0::numeric), sign(-0.5::numeric), sign(0.5::numeric), sign(1::numeric), sign(-1::numeric), sign(2::numeric), sign(-3::numeric), exp('NaN'::numeric), exp('Infinity'::numeric), exp('-Infinity'::numeric)
select exp(0::numeric), exp(-0.5::numeric), exp(0.5::numeric), exp(1::numeric), exp(-1::numeric), exp(2::numeric), exp(-3::numeric), sqrt('NaN'::numeric), sqrt('Infinity'::numeric), sqrt(0::numeric), sqrt(0.5::numeric), sqrt(1::numeric), sqrt(2::numeric), abs('NaN'::numeric)
select abs('Infinity'::numeric), abs('-Infinity'::numeric), abs(0::numeric), abs(-0.5::numeric), abs(0.5::numeric), abs(1::numeric), abs(-1::numeric), abs(2::numeric), abs(-3::numeric), ceil('NaN'::numeric), ceil('Infinity'::numeric), ceil('-Infinity'::numeric), ceil(0::numeric), ceil(-0.5::numeric)
select ceil(0.5::numeric), ceil(1::numeric), ceil(-1::numeric), ceil(2::numeric), ceil(-3::numeric), trunc('NaN'::numeric), trunc('Infinity'::numeric), trunc('-Infinity'::numeric), trunc(0::numeric), trunc(-0.5::numeric), trunc(0.5::numeric), trunc(1::numeric), trunc(-1::numeric), trunc(2::numeric)
select trunc(-3::numeric), round('NaN'::numeric), round('Infinity'::numeric), round('-Infinity'::numeric), round(0::numeric), round(-0.5::numeric), round(0.5::numeric), round(1::numeric), round(-1::numeric), round(2::numeric), round(-3::numeric), scale('NaN'::numeric), scale('Infinity'::numeric), scale('-Infinity'::numeric)
select scale(0::numeric), scale(-0.5::numeric), scale(0.5::numeric), scale(1::numeric), scale(-1::numeric), scale(2::numeric), scale(-3::numeric)
select div('NaN'::numeric, 'NaN'::numeric), div('NaN'::numeric, 'Infinity'::numeric), div('NaN'::numeric, '-Infinity'::numeric), div('NaN'::numeric, 0::numeric), div('NaN'::numeric, 1::numeric), div('NaN'::numeric, -1::numeric), div('NaN'::numeric, 2::numeric), div('Infinity'::numeric, 'NaN'::numeric), div('Infinity'::numeric, 'Infinity'::numeric), div('Infinity'::numeric, '-Infinity'::numeric), div('Infinity'::numeric, 1::numeric), div('Infinity'::numeric, -1::numeric), div('Infinity'::numeric, 2::numeric), div('-Infinity'::numeric, 'NaN'::numeric)
select div('-Infinity'::numeric, 'Infinity'::numeric), div('-Infinity'::numeric, '-Infinity'::numeric), div('-Infinity'::numeric, 1::numeric), div('-Infinity'::numeric, -1::numeric), div('-Infinity'::numeric, 2::numeric), div(0::numeric, 'NaN'::numeric), div(0::numeric, 'Infinity'::numeric), div(0::numeric, '-Infinity'::numeric), div(0::numeric, 1::numeric), div(0::numeric, -1::numeric), div(0::numeric, 2::numeric), div(1::numeric, 'NaN'::numeric), div(1::numeric, 'Infinity'::numeric), div(1::numeric, '-Infinity'::numeric)
select div(1::numeric, 1::numeric), div(1::numeric, -1::numeric), div(1::numeric, 2::numeric), div(-1::numeric, 'NaN'::numeric), div(-1::numeric, 'Infinity'::numeric), div(-1::numeric, '-Infinity'::numeric), div(-1::numeric, 1::numeric), div(-1::numeric, -1::numeric), div(-1::numeric, 2::numeric), div(2::numeric, 'NaN'::numeric), div(2::numeric, 'Infinity'::numeric), div(2::numeric, '-Infinity'::numeric), div(2::numeric, 1::numeric), div(2::numeric, -1::numeric)
select div(2::numeric, 2::numeric), mod('NaN'::numeric, 'NaN'::numeric), mod('NaN'::numeric, 'Infinity'::numeric), mod('NaN'::numeric, '-Infinity'::numeric), mod('NaN'::numeric, 0::numeric), mod('NaN'::numeric, 1::numeric), mod('NaN'::numeric, -1::numeric), mod('NaN'::numeric, 2::numeric), mod('Infinity'::numeric, 'NaN'::numeric), mod('Infinity'::numeric, 'Infinity'::numeric), mod('Infinity'::numeric, '-Infinity'::numeric), mod('Infinity'::numeric, 1::numeric), mod('Infinity'::numeric, -1::numeric), mod('Infinity'::numeric, 2::numeric)
select mod('-Infinity'::numeric, 'NaN'::numeric), mod('-Infinity'::numeric, 'Infinity'::numeric), mod('-Infinity'::numeric, '-Infinity'::numeric), mod('-Infinity'::numeric, 1::numeric), mod('-Infinity'::numeric, -1::numeric), mod('-Infinity'::numeric, 2::numeric), mod(0::numeric, 'NaN'::numeric), mod(0::numeric, 'Infinity'::numeric), mod(0::numeric, '-Infinity'::numeric), mod(0::numeric, 1::numeric), mod(0::numeric, -1::numeric), mod(0::numeric, 2::numeric), mod(1::numeric, 'NaN'::numeric), mod(1::numeric, 'Infinity'::numeric)
select mod(1::numeric, '-Infinity'::numeric), mod(1::numeric, 1::numeric), mod(1::numeric, -1::numeric), mod(1::numeric, 2::numeric), mod(-1::numeric, 'NaN'::numeric), mod(-1::numeric, 'Infinity'::numeric), mod(-1::numeric, '-Infinity'::numeric), mod(-1::numeric, 1::numeric), mod(-1::numeric, -1::numeric), mod(-1::numeric, 2::numeric), mod(2::numeric, 'NaN'::numeric), mod(2::numeric, 'Infinity'::numeric), mod(2::numeric, '-Infinity'::numeric), mod(2::numeric, 1::numeric)
select mod(2::numeric, -1::numeric), mod(2::numeric, 2::numeric), gcd('NaN'::numeric, 'NaN'::numeric), gcd('NaN'::numeric, 'Infinity'::numeric), gcd('NaN'::numeric, '-Infinity'::numeric), gcd('NaN'::numeric, 0::numeric), gcd('NaN'::numeric, 1::numeric), gcd('NaN'::numeric, -1::numeric), gcd('NaN'::numeric, 2::numeric), gcd('Infinity'::numeric, 'NaN'::numeric), gcd('Infinity'::numeric, 'Infinity'::numeric), gcd('Infinity'::numeric, '-Infinity'::numeric), gcd('Infinity'::numeric, 0::numeric), gcd('Infinity'::numeric, 1::numeric)
select gcd('Infinity'::numeric, -1::numeric), gcd('Infinity'::numeric, 2::numeric), gcd('-Infinity'::numeric, 'NaN'::numeric), gcd('-Infinity'::numeric, 'Infinity'::numeric), gcd('-Infinity'::numeric, '-Infinity'::numeric), gcd('-Infinity'::numeric, 0::numeric), gcd('-Infinity'::numeric, 1::numeric), gcd('-Infinity'::numeric, -1::numeric), gcd('-Infinity'::numeric, 2::numeric), gcd(0::numeric, 'NaN'::numeric), gcd(0::numeric, 'Infinity'::numeric), gcd(0::numeric, '-Infinity'::numeric), gcd(0::numeric, 0::numeric), gcd(0::numeric, 1::numeric)
select gcd(0::numeric, -1::numeric), gcd(0::numeric, 2::numeric), gcd(1::numeric, 'NaN'::numeric), gcd(1::numeric, 'Infinity'::numeric), gcd(1::numeric, '-Infinity'::numeric), gcd(1::numeric, 0::numeric), gcd(1::numeric, 1::numeric), gcd(1::numeric, -1::numeric), gcd(1::numeric, 2::numeric), gcd(-1::numeric, 'NaN'::numeric), gcd(-1::numeric, 'Infinity'::numeric), gcd(-1::numeric, '-Infinity'::numeric), gcd(-1::numeric, 0::numeric), gcd(-1::numeric, 1::numeric)
select gcd(-1::numeric, -1::numeric), gcd(-1::numeric, 2::numeric), gcd(2::numeric, 'NaN'::numeric), gcd(2::numeric, 'Infinity'::numeric), gcd(2::numeric, '-Infinity'::numeric), gcd(2::numeric, 0::numeric), gcd(2::numeric, 1::numeric), gcd(2::numeric, -1::numeric), gcd(2::numeric, 2::numeric)
select sign('NaN'::float8), sign('Infinity'::float8), sign('-Infinity'::float8), sign(-0.5::float8), sign(0.5::float8), sign(1::float8), sign(-1::float8), sign(1000::float8), sinh('NaN'::float8), sinh('Infinity'::float8), sinh('-Infinity'::float8), sinh(-0.5::float8), sinh(0.5::float8), sinh(1::float8)
select sinh(-1::float8), sinh(1000::float8), cosh('NaN'::float8), cosh('Infinity'::float8), cosh('-Infinity'::float8), cosh(-0.5::float8), cosh(0.5::float8), cosh(1::float8), cosh(-1::float8), cosh(1000::float8), tanh('NaN'::float8), tanh('Infinity'::float8), tanh('-Infinity'::float8), tanh(-0.5::float8)
select tanh(0.5::float8), tanh(1::float8), tanh(-1::float8), tanh(1000::float8), asinh('NaN'::float8), asinh('Infinity'::float8), asinh('-Infinity'::float8), asinh(-0.5::float8), asinh(0.5::float8), asinh(1::float8), asinh(-1::float8), asinh(1000::float8), atanh('NaN'::float8), atanh(-0.5::float8)
select atanh(0.5::float8), atanh(1::float8), atanh(-1::float8), sind('NaN'::float8), sind(-0.5::float8), sind(0.5::float8), sind(1::float8), sind(-1::float8), sind(1000::float8), cosd('NaN'::float8), cosd(-0.5::float8), cosd(0.5::float8), cosd(1::float8), cosd(-1::float8)
select cosd(1000::float8), tand('NaN'::float8), tand(-0.5::float8), tand(0.5::float8), tand(1::float8), tand(-1::float8), tand(1000::float8), cotd('NaN'::float8), cotd(-0.5::float8), cotd(0.5::float8), cotd(1::float8), cotd(-1::float8), cotd(1000::float8), asind('NaN'::float8)
select asind(-0.5::float8), asind(0.5::float8), asind(1::float8), asind(-1::float8), acosd('NaN'::float8), acosd(-0.5::float8), acosd(0.5::float8), acosd(1::float8), acosd(-1::float8), atand('NaN'::float8), atand('Infinity'::float8), atand('-Infinity'::float8), atand(-0.5::float8), atand(0.5::float8)
select atand(1::float8), atand(-1::float8), atand(1000::float8), exp('NaN'::float8), exp('Infinity'::float8), exp('-Infinity'::float8), exp(-0.5::float8), exp(0.5::float8), exp(1::float8), exp(-1::float8)
select atan2d(0::float8, 0::float8), atan2d(0::float8, -0.5::float8), atan2d(0::float8, 0.5::float8), atan2d(0::float8, 1::float8), atan2d(0::float8, -1::float8), atan2d(-0.5::float8, 0::float8), atan2d(-0.5::float8, -0.5::float8), atan2d(-0.5::float8, 0.5::float8), atan2d(-0.5::float8, 1::float8), atan2d(-0.5::float8, -1::float8), atan2d(0.5::float8, 0::float8), atan2d(0.5::float8, -0.5::float8), atan2d(0.5::float8, 0.5::float8), atan2d(0.5::float8, 1::float8)
select atan2d(0.5::float8, -1::float8), atan2d(1::float8, 0::float8), atan2d(1::float8, -0.5::float8), atan2d(1::float8, 0.5::float8), atan2d(1::float8, 1::float8), atan2d(1::float8, -1::float8), atan2d(-1::float8, 0::float8), atan2d(-1::float8, -0.5::float8), atan2d(-1::float8, 0.5::float8), atan2d(-1::float8, 1::float8), atan2d(-1::float8, -1::float8), atan2d(2::float8, 0::float8), atan2d(2::float8, -0.5::float8), atan2d(2::float8, 0.5::float8)
select atan2d(2::float8, 1::float8), atan2d(2::float8, -1::float8), atan2d(-3::float8, 0::float8), atan2d(-3::float8, -0.5::float8), atan2d(-3::float8, 0.5::float8), atan2d(-3::float8, 1::float8), atan2d(-3::float8, -1::float8)
select sind(30::float8), sind(45::float8), sind(60::float8), sind(90::float8), sind(-90::float8), sind(120::float8), sind(135::float8), sind(180::float8), sind(270::float8), sind(359.5::float8), sind(-400.25::float8), cosd(30::float8), cosd(45::float8), cosd(60::float8)
select cosd(90::float8), cosd(-90::float8), cosd(120::float8), cosd(135::float8), cosd(180::float8), cosd(270::float8), cosd(359.5::float8), cosd(-400.25::float8), tand(30::float8), tand(45::float8), tand(60::float8), tand(90::float8), tand(-90::float8), tand(120::float8)
select tand(135::float8), tand(180::float8), tand(270::float8), tand(359.5::float8), tand(-400.25::float8), cotd(30::float8), cotd(45::float8), cotd(60::float8), cotd(90::float8), cotd(-90::float8), cotd(120::float8), cotd(135::float8), cotd(180::float8), cotd(270::float8)
select cotd(359.5::float8), cotd(-400.25::float8)
select to_char('NaN'::numeric, '999.99'), to_char('NaN'::numeric, 'FM99'), to_char('NaN'::numeric, '9999S'), to_char('Infinity'::numeric, '999.99'), to_char('Infinity'::numeric, 'FM99'), to_char('Infinity'::numeric, '9999S'), to_char('-Infinity'::numeric, '999.99'), to_char('-Infinity'::numeric, 'FM99'), to_char('-Infinity'::numeric, '9999S'), to_char(0::numeric, '999.99'), to_char(0::numeric, 'FM99'), to_char(0::numeric, '9999S'), to_char(-0.5::numeric, '999.99'), to_char(-0.5::numeric, 'FM99')
select to_char(-0.5::numeric, '9999S'), to_char(0.5::numeric, '999.99'), to_char(0.5::numeric, 'FM99'), to_char(0.5::numeric, '9999S'), to_char(1::numeric, '999.99'), to_char(1::numeric, 'FM99'), to_char(1::numeric, '9999S'), to_char(-1::numeric, '999.99'), to_char(-1::numeric, 'FM99'), to_char(-1::numeric, '9999S'), to_char(2::numeric, '999.99'), to_char(2::numeric, 'FM99'), to_char(2::numeric, '9999S'), to_char(-3::numeric, '999.99')
select to_char(-3::numeric, 'FM99'), to_char(-3::numeric, '9999S')
select width_bucket('Infinity'::numeric, 0::numeric, 10::numeric, 5), width_bucket('-Infinity'::numeric, 0::numeric, 10::numeric, 5), width_bucket(0::numeric, 0::numeric, 10::numeric, 5), width_bucket(-0.5::numeric, 0::numeric, 10::numeric, 5), width_bucket(0.5::numeric, 0::numeric, 10::numeric, 5), width_bucket(1::numeric, 0::numeric, 10::numeric, 5), width_bucket(-1::numeric, 0::numeric, 10::numeric, 5), width_bucket(2::numeric, 0::numeric, 10::numeric, 5), width_bucket(-3::numeric, 0::numeric, 10::numeric, 5), json_build_array('NaN'::numeric, 'NaN'::float8), json_build_array('Infinity'::numeric, 'Infinity'::float8), json_build_array('-Infinity'::numeric, '-Infinity'::float8), json_build_array(0::numeric, 0::float8), json_build_array(-0.5::numeric, -0.5::float8)
select json_build_array(0.5::numeric, 0.5::float8), json_build_array(1::numeric, 1::float8), json_build_array(-1::numeric, -1::float8), json_build_array(2::numeric, 2::float8), json_build_array(-3::numeric, -3::float8)
select log('-Infinity'::numeric, 0)
select log(0::numeric, '-Infinity')
select 0::numeric ^ '-Infinity'::numeric
select (-0.5)::numeric ^ 0.5::numeric
select width_bucket(1::numeric, 0::numeric, 'Infinity'::numeric, 3)
select width_bucket(1::float8, '-Infinity'::float8, 1::float8, 3)
select make_interval(secs => 'NaN')
select make_time(1, 2, 'Infinity')
select to_timestamp('NaN'::float8)
select make_timestamptz(2024, 1, 1, 0, 0, 0, '5')
select n, 2::numeric ^ n, n ^ 2, sign(n), to_json(n), n::float8, n::text || '' from unnest(array['NaN', 'Infinity', '-Infinity', '-1', '0.5', '2']::numeric[]) v(n) order by n
select n, log(n), ln(n) from unnest(array['NaN', 'Infinity', '0.5', '2']::numeric[]) v(n) order by n
select json_agg(n order by n), sum(n), avg(n), max(n), min(n), stddev(n) from unnest(array['Infinity', '-1', '0.5', '2']::numeric[]) v(n)
select sum(n), avg(n), max(n), min(n), variance(n), count(*) from unnest(array['Infinity', '-Infinity', '2']::numeric[]) v(n)
select make_timestamptz(2024, 1, 1, 0, 0, 0, '+05'), make_timestamptz(2024, 1, 1, 0, 0, 0, '-05:30'), make_timestamptz(2024, 1, 1, 0, 0, 0, 'EST5EDT')
select interval '1 year' / 7, interval '1 year' * 0.1, 7 * interval '1 mon 1 day 00:00:01', interval '-1 year' / 7, interval '1 mon' / 30.4
-- what does not fit, is infinite or NaN in to_char
select to_char('NaN'::numeric, '9.9'), to_char('NaN'::float8, '999.99'), to_char('Infinity'::float8, '9.9'), to_char('-Infinity'::float8, '9.99'), to_char('NaN'::numeric, 'FM9.99'), to_char('Infinity'::numeric, '99999999.99'), to_char('NaN'::numeric, '.99'), to_char('-Infinity'::float8, 'FM9999999999.90')
select to_char(12345.6, 'FM99.99'), to_char(12345, 'FM99.00'), to_char(123, 'FM99.99'), to_char(-123.5, 'FM9.9'), to_char('Infinity'::numeric, 'FM9.09')
-- where the sign of to_char stands, and where its number ends
select to_char(-5, 'x'), to_char(-5, 'x9'), to_char(-5, 'S') || '|', to_char(-5, 'PR') || '|', to_char(5, '') || '|', to_char(5, '"a"') || '|', to_char(5, 'SG') || '|', to_char(1.5, '{q}')
select to_char(12.5, '$999.99'), to_char(-12.5, '$999.99'), to_char(1234.5, '$9,999.99'), to_char(-1234.5, 'L9G999D99'), to_char(12, 'x9'), to_char(12, 'x99'), to_char(12, '"Total: "999'), to_char(-12, '"Total: "999'), to_char(-12, 'FM"Total: "999'), to_char(-12, 'FM$999.00'), to_char(-12, 'EUR 999'), to_char(-0.5, '$9.99'), to_char(-0.5, '$.99'), to_char(-12, '99" pc"'), to_char(-12, 'S$99'), to_char(-12, '$S99'), to_char(-12, '$99S'), to_char(-12, '$99PR'), to_char(-12, '$99MI'), to_char(-12, '(99)'), to_char(-12, '$0999'), to_char(-12, '99-99'), to_char(12, 'PL$99')
select to_char(12.5, 'FM990D90%'), to_char(12.5, '00D09)'), to_char(12.5, '0G000.PR'), to_char(12.5, 'FM9D09MI'), to_char(12.5, 'FM99'), to_char(12.5, '$.'), to_char(12.5, '"t: "00D09" x"'), to_char(12.5, '$9.')
select to_char(-1234.567, 'FM990D90%'), to_char(-1234.567, '00D09)'), to_char(-1234.567, '0G000.PR'), to_char(-1234.567, 'FM9D09MI'), to_char(-1234.567, 'FM99'), to_char(-1234.567, '$.'), to_char(-1234.567, '"t: "00D09" x"'), to_char(-1234.567, '$9.')
select to_char(-0.5, 'FM990D90%'), to_char(-0.5, '00D09)'), to_char(-0.5, '0G000.PR'), to_char(-0.5, 'FM9D09MI'), to_char(-0.5, 'FM99'), to_char(-0.5, '$.'), to_char(-0.5, '"t: "00D09" x"'), to_char(-0.5, '$9.')
select to_char(0, 'FM990D90%'), to_char(0, '00D09)'), to_char(0, '0G000.PR'), to_char(0, 'FM9D09MI'), to_char(0, 'FM99'), to_char(0, '$.'), to_char(0, '"t: "00D09" x"'), to_char(0, '$9.')
select to_char('NaN'::numeric, 'FM990D90%'), to_char('NaN'::numeric, '00D09)'), to_char('NaN'::numeric, '0G000.PR'), to_char('NaN'::numeric, 'FM9D09MI'), to_char('NaN'::numeric, 'FM99'), to_char('NaN'::numeric, '$.'), to_char('NaN'::numeric, '"t: "00D09" x"'), to_char('NaN'::numeric, '$9.')
select to_char(12.5, 'FM$990%'), to_char(12.5, 'L999)'), to_char(12.5, 'LD09%'), to_char(12.5, 'L999.00)'), to_char(12.5, 'SG00.'), to_char(12.5, 'EUR 990.00)'), to_char(12.5, 'FM999D09PR'), to_char(12.5, 'EUR 099PR')
select to_char(-1234.567, 'FM$990%'), to_char(-1234.567, 'L999)'), to_char(-1234.567, 'LD09%'), to_char(-1234.567, 'L999.00)'), to_char(-1234.567, 'SG00.'), to_char(-1234.567, 'EUR 990.00)'), to_char(-1234.567, 'FM999D09PR'), to_char(-1234.567, 'EUR 099PR')
select to_char(-0.5, 'FM$990%'), to_char(-0.5, 'L999)'), to_char(-0.5, 'LD09%'), to_char(-0.5, 'L999.00)'), to_char(-0.5, 'SG00.'), to_char(-0.5, 'EUR 990.00)'), to_char(-0.5, 'FM999D09PR'), to_char(-0.5, 'EUR 099PR')
select to_char(0, 'FM$990%'), to_char(0, 'L999)'), to_char(0, 'LD09%'), to_char(0, 'L999.00)'), to_char(0, 'SG00.'), to_char(0, 'EUR 990.00)'), to_char(0, 'FM999D09PR'), to_char(0, 'EUR 099PR')
select to_char('NaN'::numeric, 'FM$990%'), to_char('NaN'::numeric, 'L999)'), to_char('NaN'::numeric, 'LD09%'), to_char('NaN'::numeric, 'L999.00)'), to_char('NaN'::numeric, 'SG00.'), to_char('NaN'::numeric, 'EUR 990.00)'), to_char('NaN'::numeric, 'FM999D09PR'), to_char('NaN'::numeric, 'EUR 099PR')
select to_char(12.5, 'PL90D09'), to_char(12.5, '(99.99'), to_char(12.5, 'FM9,999.00%'), to_char(12.5, 'FM$999.'), to_char(12.5, '990.00'), to_char(12.5, 'MI90" x"'), to_char(12.5, '9,999)'), to_char(12.5, '.9%')
select to_char(-1234.567, 'PL90D09'), to_char(-1234.567, '(99.99'), to_char(-1234.567, 'FM9,999.00%'), to_char(-1234.567, 'FM$999.'), to_char(-1234.567, '990.00'), to_char(-1234.567, 'MI90" x"'), to_char(-1234.567, '9,999)'), to_char(-1234.567, '.9%')
select to_char(-0.5, 'PL90D09'), to_char(-0.5, '(99.99'), to_char(-0.5, 'FM9,999.00%'), to_char(-0.5, 'FM$999.'), to_char(-0.5, '990.00'), to_char(-0.5, 'MI90" x"'), to_char(-0.5, '9,999)'), to_char(-0.5, '.9%')
select to_char(0, 'PL90D09'), to_char(0, '(99.99'), to_char(0, 'FM9,999.00%'), to_char(0, 'FM$999.'), to_char(0, '990.00'), to_char(0, 'MI90" x"'), to_char(0, '9,999)'), to_char(0, '.9%')
select to_char('NaN'::numeric, 'PL90D09'), to_char('NaN'::numeric, '(99.99'), to_char('NaN'::numeric, 'FM9,999.00%'), to_char('NaN'::numeric, 'FM$999.'), to_char('NaN'::numeric, '990.00'), to_char('NaN'::numeric, 'MI90" x"'), to_char('NaN'::numeric, '9,999)'), to_char('NaN'::numeric, '.9%')
select to_char(12.5, '$00%'), to_char(12.5, '$S990.9'), to_char(12.5, '"t: "99)'), to_char(12.5, '$S00.00" x"'), to_char(12.5, '9,999.00S'), to_char(12.5, '9.9PR'), to_char(12.5, 'PL90'), to_char(12.5, 'PL999D90)')
select to_char(-1234.567, '$00%'), to_char(-1234.567, '$S990.9'), to_char(-1234.567, '"t: "99)'), to_char(-1234.567, '$S00.00" x"'), to_char(-1234.567, '9,999.00S'), to_char(-1234.567, '9.9PR'), to_char(-1234.567, 'PL90'), to_char(-1234.567, 'PL999D90)')
select to_char(-0.5, '$00%'), to_char(-0.5, '$S990.9'), to_char(-0.5, '"t: "99)'), to_char(-0.5, '$S00.00" x"'), to_char(-0.5, '9,999.00S'), to_char(-0.5, '9.9PR'), to_char(-0.5, 'PL90'), to_char(-0.5, 'PL999D90)')
select to_char(0, '$00%'), to_char(0, '$S990.9'), to_char(0, '"t: "99)'), to_char(0, '$S00.00" x"'), to_char(0, '9,999.00S'), to_char(0, '9.9PR'), to_char(0, 'PL90'), to_char(0, 'PL999D90)')
select to_char('NaN'::numeric, '$00%'), to_char('NaN'::numeric, '$S990.9'), to_char('NaN'::numeric, '"t: "99)'), to_char('NaN'::numeric, '$S00.00" x"'), to_char('NaN'::numeric, '9,999.00S'), to_char('NaN'::numeric, '9.9PR'), to_char('NaN'::numeric, 'PL90'), to_char('NaN'::numeric, 'PL999D90)')
select to_char(12.5, '099.9PR'), to_char(12.5, '$990MI'), to_char(12.5, '$0G000.S'), to_char(12.5, '$990D90SG'), to_char(12.5, '90D90S'), to_char(12.5, 'FM$9D09%'), to_char(12.5, 'FM099.9PL'), to_char(12.5, '$S90.00')
select to_char(-1234.567, '099.9PR'), to_char(-1234.567, '$990MI'), to_char(-1234.567, '$0G000.S'), to_char(-1234.567, '$990D90SG'), to_char(-1234.567, '90D90S'), to_char(-1234.567, 'FM$9D09%'), to_char(-1234.567, 'FM099.9PL'), to_char(-1234.567, '$S90.00')
select to_char(-0.5, '099.9PR'), to_char(-0.5, '$990MI'), to_char(-0.5, '$0G000.S'), to_char(-0.5, '$990D90SG'), to_char(-0.5, '90D90S'), to_char(-0.5, 'FM$9D09%'), to_char(-0.5, 'FM099.9PL'), to_char(-0.5, '$S90.00')
select to_char(0, '099.9PR'), to_char(0, '$990MI'), to_char(0, '$0G000.S'), to_char(0, '$990D90SG'), to_char(0, '90D90S'), to_char(0, 'FM$9D09%'), to_char(0, 'FM099.9PL'), to_char(0, '$S90.00')
select to_char('NaN'::numeric, '099.9PR'), to_char('NaN'::numeric, '$990MI'), to_char('NaN'::numeric, '$0G000.S'), to_char('NaN'::numeric, '$990D90SG'), to_char('NaN'::numeric, '90D90S'), to_char('NaN'::numeric, 'FM$9D09%'), to_char('NaN'::numeric, 'FM099.9PL'), to_char('NaN'::numeric, '$S90.00')
select to_char(12.5, '(990.9S'), to_char(12.5, 'EUR 999D09PL'), to_char(12.5, '(S'), to_char(12.5, 'FMS999" x"'), to_char(12.5, '0G000%'), to_char(12.5, '"t: "0.99)'), to_char(12.5, '$0SG'), to_char(12.5, '9,999.9)')
select to_char(-1234.567, '(990.9S'), to_char(-1234.567, 'EUR 999D09PL'), to_char(-1234.567, '(S'), to_char(-1234.567, 'FMS999" x"'), to_char(-1234.567, '0G000%'), to_char(-1234.567, '"t: "0.99)'), to_char(-1234.567, '$0SG'), to_char(-1234.567, '9,999.9)')
select to_char(-0.5, '(990.9S'), to_char(-0.5, 'EUR 999D09PL'), to_char(-0.5, '(S'), to_char(-0.5, 'FMS999" x"'), to_char(-0.5, '0G000%'), to_char(-0.5, '"t: "0.99)'), to_char(-0.5, '$0SG'), to_char(-0.5, '9,999.9)')
select to_char(0, '(990.9S'), to_char(0, 'EUR 999D09PL'), to_char(0, '(S'), to_char(0, 'FMS999" x"'), to_char(0, '0G000%'), to_char(0, '"t: "0.99)'), to_char(0, '$0SG'), to_char(0, '9,999.9)')
select to_char('NaN'::numeric, '(990.9S'), to_char('NaN'::numeric, 'EUR 999D09PL'), to_char('NaN'::numeric, '(S'), to_char('NaN'::numeric, 'FMS999" x"'), to_char('NaN'::numeric, '0G000%'), to_char('NaN'::numeric, '"t: "0.99)'), to_char('NaN'::numeric, '$0SG'), to_char('NaN'::numeric, '9,999.9)')
select to_char(12.5, 'MI99'), to_char(12.5, '99.99SG'), to_char(12.5, '$9,999D09PR'), to_char(12.5, 'EUR 9,999.9'), to_char(12.5, 'S099D90'), to_char(12.5, 'FM99D09'), to_char(12.5, 'FM0G000MI'), to_char(12.5, 'FM$9,999.9" x"')
select to_char(-1234.567, 'MI99'), to_char(-1234.567, '99.99SG'), to_char(-1234.567, '$9,999D09PR'), to_char(-1234.567, 'EUR 9,999.9'), to_char(-1234.567, 'S099D90'), to_char(-1234.567, 'FM99D09'), to_char(-1234.567, 'FM0G000MI'), to_char(-1234.567, 'FM$9,999.9" x"')
select to_char(-0.5, 'MI99'), to_char(-0.5, '99.99SG'), to_char(-0.5, '$9,999D09PR'), to_char(-0.5, 'EUR 9,999.9'), to_char(-0.5, 'S099D90'), to_char(-0.5, 'FM99D09'), to_char(-0.5, 'FM0G000MI'), to_char(-0.5, 'FM$9,999.9" x"')
select to_char(0, 'MI99'), to_char(0, '99.99SG'), to_char(0, '$9,999D09PR'), to_char(0, 'EUR 9,999.9'), to_char(0, 'S099D90'), to_char(0, 'FM99D09'), to_char(0, 'FM0G000MI'), to_char(0, 'FM$9,999.9" x"')
select to_char('NaN'::numeric, 'MI99'), to_char('NaN'::numeric, '99.99SG'), to_char('NaN'::numeric, '$9,999D09PR'), to_char('NaN'::numeric, 'EUR 9,999.9'), to_char('NaN'::numeric, 'S099D90'), to_char('NaN'::numeric, 'FM99D09'), to_char('NaN'::numeric, 'FM0G000MI'), to_char('NaN'::numeric, 'FM$9,999.9" x"')
select to_char(12.5, 'FM999.'), to_char(12.5, 'PL90D90)'), to_char(12.5, 'FM0G000D90S'), to_char(12.5, 'FMS9G999'), to_char(12.5, '$" x"'), to_char(12.5, 'PL9G999" x"'), to_char(12.5, '"t: "990.9PR'), to_char(12.5, '$990D90')
select to_char(-1234.567, 'FM999.'), to_char(-1234.567, 'PL90D90)'), to_char(-1234.567, 'FM0G000D90S'), to_char(-1234.567, 'FMS9G999'), to_char(-1234.567, '$" x"'), to_char(-1234.567, 'PL9G999" x"'), to_char(-1234.567, '"t: "990.9PR'), to_char(-1234.567, '$990D90')
select to_char(-0.5, 'FM999.'), to_char(-0.5, 'PL90D90)'), to_char(-0.5, 'FM0G000D90S'), to_char(-0.5, 'FMS9G999'), to_char(-0.5, '$" x"'), to_char(-0.5, 'PL9G999" x"'), to_char(-0.5, '"t: "990.9PR'), to_char(-0.5, '$990D90')
select to_char(0, 'FM999.'), to_char(0, 'PL90D90)'), to_char(0, 'FM0G000D90S'), to_char(0, 'FMS9G999'), to_char(0, '$" x"'), to_char(0, 'PL9G999" x"'), to_char(0, '"t: "990.9PR'), to_char(0, '$990D90')
select to_char('NaN'::numeric, 'FM999.'), to_char('NaN'::numeric, 'PL90D90)'), to_char('NaN'::numeric, 'FM0G000D90S'), to_char('NaN'::numeric, 'FMS9G999'), to_char('NaN'::numeric, '$" x"'), to_char('NaN'::numeric, 'PL9G999" x"'), to_char('NaN'::numeric, '"t: "990.9PR'), to_char('NaN'::numeric, '$990D90')
select to_char(12.5, 'FM$9,999D09PR'), to_char(12.5, '9,999D90'), to_char(12.5, 'FM00D09PL'), to_char(12.5, '$S099.%'), to_char(12.5, 'EUR 9D09" x"'), to_char(12.5, 'SG9'), to_char(12.5, '$9G999.9'), to_char(12.5, '00.PR')
select to_char(-1234.567, 'FM$9,999D09PR'), to_char(-1234.567, '9,999D90'), to_char(-1234.567, 'FM00D09PL'), to_char(-1234.567, '$S099.%'), to_char(-1234.567, 'EUR 9D09" x"'), to_char(-1234.567, 'SG9'), to_char(-1234.567, '$9G999.9'), to_char(-1234.567, '00.PR')
select to_char(-0.5, 'FM$9,999D09PR'), to_char(-0.5, '9,999D90'), to_char(-0.5, 'FM00D09PL'), to_char(-0.5, '$S099.%'), to_char(-0.5, 'EUR 9D09" x"'), to_char(-0.5, 'SG9'), to_char(-0.5, '$9G999.9'), to_char(-0.5, '00.PR')
select to_char(0, 'FM$9,999D09PR'), to_char(0, '9,999D90'), to_char(0, 'FM00D09PL'), to_char(0, '$S099.%'), to_char(0, 'EUR 9D09" x"'), to_char(0, 'SG9'), to_char(0, '$9G999.9'), to_char(0, '00.PR')
select to_char('NaN'::numeric, 'FM$9,999D09PR'), to_char('NaN'::numeric, '9,999D90'), to_char('NaN'::numeric, 'FM00D09PL'), to_char('NaN'::numeric, '$S099.%'), to_char('NaN'::numeric, 'EUR 9D09" x"'), to_char('NaN'::numeric, 'SG9'), to_char('NaN'::numeric, '$9G999.9'), to_char('NaN'::numeric, '00.PR')
select to_char(12.5, 'EUR 0G000D90'), to_char(12.5, 'FM$0D09'), to_char(12.5, 'FM0G000D90SG'), to_char(12.5, 'MI9G999.99" x"'), to_char(12.5, 'FM9G999.00)'), to_char(12.5, '9,999.'), to_char(12.5, '990.PL'), to_char(12.5, '(099.9MI')
select to_char(-1234.567, 'EUR 0G000D90'), to_char(-1234.567, 'FM$0D09'), to_char(-1234.567, 'FM0G000D90SG'), to_char(-1234.567, 'MI9G999.99" x"'), to_char(-1234.567, 'FM9G999.00)'), to_char(-1234.567, '9,999.'), to_char(-1234.567, '990.PL'), to_char(-1234.567, '(099.9MI')
select to_char(-0.5, 'EUR 0G000D90'), to_char(-0.5, 'FM$0D09'), to_char(-0.5, 'FM0G000D90SG'), to_char(-0.5, 'MI9G999.99" x"'), to_char(-0.5, 'FM9G999.00)'), to_char(-0.5, '9,999.'), to_char(-0.5, '990.PL'), to_char(-0.5, '(099.9MI')
select to_char(0, 'EUR 0G000D90'), to_char(0, 'FM$0D09'), to_char(0, 'FM0G000D90SG'), to_char(0, 'MI9G999.99" x"'), to_char(0, 'FM9G999.00)'), to_char(0, '9,999.'), to_char(0, '990.PL'), to_char(0, '(099.9MI')
select to_char('NaN'::numeric, 'EUR 0G000D90'), to_char('NaN'::numeric, 'FM$0D09'), to_char('NaN'::numeric, 'FM0G000D90SG'), to_char('NaN'::numeric, 'MI9G999.99" x"'), to_char('NaN'::numeric, 'FM9G999.00)'), to_char('NaN'::numeric, '9,999.'), to_char('NaN'::numeric, '990.PL'), to_char('NaN'::numeric, '(099.9MI')
-- pairs that are not finite
select regr_sxx(y, x), regr_syy(y, x), regr_sxy(y, x), regr_r2(y, x), corr(y, x), covar_pop(y, x), regr_slope(y, x), regr_intercept(y, x) from (values ('NaN'::float8, 1::float8)) v(y, x)
select regr_sxx(y, x), regr_syy(y, x), regr_sxy(y, x), regr_r2(y, x), corr(y, x), covar_pop(y, x), regr_slope(y, x), regr_intercept(y, x) from (values (1::float8, 'Infinity'::float8), (2, 3)) v(y, x)
select to_char(x,'MI'), to_char(x,'SG'), to_char(x,'PL'), to_char(x,'S'), to_char(x,'PR'), to_char(x,'FMMI'), to_char(x,'MIPL'), to_char(x,'xMI'), to_char(x,'MIx'), to_char(x,'G'), to_char(x,'L') from (values (5),(-5),(0)) t(x)
select to_char(x,'FMPL'), to_char(x,'FMSG'), to_char(x,'"a"MI"b"'), to_char(x,'PLx'), to_char(x,'xSy'), to_char(x,'xPRy'), to_char(x,'xSGy'), to_char(x,'MI,') from (values (5),(-5),(0)) t(x)
select to_char(x,'MI') from (values (0.4),(-0.4),(-0.6),('NaN'),('-Infinity')) t(x)
select n.f8 * '-0'::float8, n.f8 * '0'::float8, n.f8 + '-0'::float8, - n.f8, n.f8 - n.f8 , 0 - n.f8 from num n join dept d on d.id = n.id
select '0'::float8, '-0'::float8, '0'::float4, '-0'::float4, n.f4 * '-0'::float4, n.f4 * '0'::float4 from num n join dept d on d.id = n.id
select count(*), '-0'::float8 = n.f8 from num n group by 2
select array['-0'::float8, '0'], '{-0}'::float8[] from num n join dept d on d.id = n.id
