-- text
select length('héllo'), char_length('日本'), octet_length('日本'), bit_length('a'), length(''), length(null)
select upper('abc'), lower('ABC'), initcap('hello world-foo bar_baz'), upper('é'), initcap('o''neil')
select substring('hello' from 2 for 3), substring('hello', 2), substring('hello' from -1 for 3), substr('hello', 0, 2), substring('hello' for 2)
select substring('hello' from 2 for -1)
select substring('foobar' from 'o(.)b'), substring('foobar' from 'o.b'), substring('foobar' from 'z'), substring('foobar', '(o+)(b)')
select substring('foobar' similar '%#"o_b#"%' escape '#')
select left('hello', 2), left('hello', -2), right('hello', 2), right('hello', -2), left('hello', 0), left('x', 10)
select position('lo' in 'hello'), strpos('hello', 'z'), position('' in 'abc'), strpos('abc', '')
select overlay('Txxxxas' placing 'hom' from 2 for 4), overlay('abcdef' placing 'ZZ' from 3), overlay('abc' placing 'X' from 10)
select overlay('abc' placing 'X' from 0)
select trim('  x  '), trim(leading from '  x '), trim(trailing 'x' from 'axx'), trim(both 'ab' from 'abcba'), ltrim('xxa', 'x'), rtrim('axx', 'x'), btrim('  a ')
select lpad('hi', 5), lpad('hi', 5, 'xy'), rpad('hi', 5, 'xy'), lpad('hello', 3), rpad('hello', 3), lpad('x', 0), lpad('x', 3, '')
select repeat('ab', 3), repeat('ab', 0), repeat('ab', -1), reverse('abc'), reverse('日本'), replace('banana', 'an', 'X'), replace('abc', '', 'x')
select translate('12345', '143', 'ax'), translate('abc', 'abc', ''), translate('hello', 'l', 'LM')
select ascii('a'), ascii('日'), ascii(''), chr(65), chr(26085)
select chr(0)
select chr(-1)
select concat('a', null, 1, true), concat_ws(',', 'a', null, 'b', 2), concat_ws(null, 'a'), concat_ws('-'), concat()
select split_part('a,b,c', ',', 2), split_part('a,b,c', ',', 9), split_part('a,b,c', ',', -1), split_part('abc', '', 1)
select split_part('a,b', ',', 0)
select format('%s %I %L', 'a', 'b c', 'd''e'), format('%2$s %1$s', 'a', 'b'), format('%%'), format('%-5s|%5s|', 'a', 'b'), format('%s', null), format('%L', null)
select format('%*s|%-*s|', 4, 'a', 4, 'b'), format('%1$s %1$s', 'x'), format('hello')
select format('%s')
select format('%I', null)
select format('%x', 1)
select format('%s', 'a', 'b'), format(null)
select quote_ident('abc'), quote_ident('a b'), quote_ident('select'), quote_ident('A'), quote_literal('it''s'), quote_literal('a\b'), quote_nullable(null), quote_literal(5)
select md5('abc'), sha256('abc'), encode(sha256('abc'), 'hex'), encode('abc', 'base64'), encode('\x00ff', 'escape'), decode('YWJj', 'base64'), decode('616263', 'hex')
select decode('zz', 'hex')
select decode('a', 'nonsense')
select regexp_replace('foobar', 'o', 'x'), regexp_replace('foobar', 'o', 'x', 'g'), regexp_replace('foobar', '(f)(o)', '\2\1'), regexp_replace('FOO', 'o', 'x', 'gi'), regexp_replace('abc', '.', '[\&]', 'g')
select regexp_replace('foobarbaz', 'b..', 'X', 1, 2), regexp_replace('aaa', 'a', 'b', 2), regexp_replace('aaa', 'a', 'b', 1, 0, 'i')
select regexp_match('foobarbequebaz', 'bar.*que'), regexp_match('foobarbequebaz', '(bar)(beque)'), regexp_match('abc', 'z'), regexp_match('ABC', 'b', 'i')
select regexp_matches('foobarbaz', 'ba(.)', 'g'), regexp_matches('foo', 'z')
select regexp_split_to_array('a, b,c', ',\s*'), regexp_split_to_array('abc', ''), regexp_count('ABCABC', 'b', 1, 'i'), regexp_instr('foobar', 'o', 1, 2), regexp_substr('foobar', 'o.'), regexp_like('Foo', '^f', 'i')
select regexp_replace('a', '(', 'x')
select 'a' ~ '['
select 'foo' ~ '^f', 'foo' ~* 'FO+', 'foo' !~ 'x', 'foo' !~* 'O', 'a.b' ~ 'a\.b', E'a\nb' ~ 'a.b', 'foo' ~ '\mfoo\M', 'a1' ~ '[[:digit:]]', 'x' ~ ''
select 'abc' like 'a%', 'abc' like '_b_', 'a%c' like 'a\%c', 'abc' not like 'b%', 'ABC' ilike 'a%', 'abc' like 'abc%%', '' like '', 'a' like null
select 'abc' similar to '%(b|d)%', 'abc' similar to 'abc', 'abc' similar to 'a', 'a+b' similar to 'a\+b', 'aa' similar to 'a{2}', 'abc' not similar to '_%'
select 'a' < 'B', 'a' < 'b', 'Z' < 'a', 'é' > 'z', '' < 'a', 'a ' = 'a', 'abc' < 'abd', 'a' || 'b' = 'ab'
select 'a'::char(3) = 'a  '::char(5), 'a'::char(3) = 'a'::text, 'a'::char(3)::text = 'a  ', length('a'::char(3)), 'a'::char(3) || 'b', 'a'::char(3) like 'a'
select E'a\tb\\n\x41\u00e9', U&'d\0061t\+000061', 'it''s', $$dollar $ quoted$$, $tag$a$$b$tag$, 'a' 'b' ;; select 1
select starts_with('abc', 'ab'), 'abc' ^@ 'b', string_to_array('1~2', '~')::int[], array_to_string(array['a', 'b'], ''), to_hex(10)
select unistr('d\0061t\+000061'), normalize('é', NFD) = 'é', is_normalized('é'), ascii(normalize('é', nfd))
select unistr('\zzzz')
select string_agg(name, ', ') from (select name from emp order by name) e
select string_agg(name, ', ' order by name desc), string_agg(distinct coalesce(name, '-'), '' order by coalesce(name, '-')) from emp
select name, substr(name, 2), upper(left(name, 1)) || lower(substr(name, 2)), position('a' in name), lpad(name, 6, '.') from emp order by id
select name, replace(name, '_', '-'), name || coalesce('/' || (select name from dept where id = e.dept), '') from emp e order by id
select kind, kind || '|', length(kind), octet_length(kind), kind::text || '|', upper(kind) from sale where id < 4 order by id
select count(*) from sale where kind like 'ab%'
select count(*) from sale where kind = 'ab' or kind::text = 'xyz'
select note, repeat(note, 2), reverse(note), ascii(note) from sale where id < 6 order by id
select 'abc'::varchar(2) || 'd', cast('abcdef' as char(3)), 'x'::char(3)::varchar || '|'
select 'abc'::bytea || '\x00', length('\x0102'::bytea), get_byte('\x0102'::bytea, 1), substring('\x010203'::bytea from 2 for 1), '\x01'::bytea < '\x02'::bytea, encode(substr('\x0a0b'::bytea, 2), 'hex')
select get_byte('\x01', 5)
select set_byte('\x0102'::bytea, 0, 255), position('\x02'::bytea in '\x0102'::bytea), convert_from('\xc3a9', 'UTF8'), convert_to('é', 'UTF8'), convert_from('\xff', 'UTF8')
select trim(both from '\x000100'::bytea), btrim('\x000100'::bytea, '\x00'), bit_count('\x0f'::bytea)
select lower(1)
select upper()
select substr('a')
select length(5)
select repeat('x', 1.5)
select left('abc', 'x')
select 'abc' -> 'a'
select quote_ident(current_schema), current_schema, current_schemas(false), current_database() is not null
select pg_client_encoding(), version() like 'PostgreSQL 15%'
select textcat('a', 'b'), text 'a' || text 'b', varchar 'x', char 'xyz', bpchar 'ab  '
select max(v), min(v) from (values ('a'), ('B'), ('b')) t(v)
select v from (values ('a'), ('B'), ('_'), ('1'), (''), (null)) t(v) order by v
select v from (values ('a'), ('B'), ('b')) t(v) order by v collate "C" desc
select 'a' collate "nope"
select 'a' < 'b' collate "C", 'x' collate "POSIX"
select 'Ab' = lower('AB')::text, casefold('A')
select crc32('a')
select string_to_array('a b c', ' ', 'b'), array_length(string_to_array('', ','), 1), regexp_split_to_array('one  two', '\s+')
select ltrim('0042', '0')::int, rpad('', 3, 'ab'), repeat(chr(97), 3), initcap('ÉCOLE')
select 'É' ilike 'é', 'É' ~* 'é', 'é' ~ '\w', upper('é'), lower('É'), initcap('éa bÉ'), 'ÀÉ' ~* '[à-ý]+', regexp_replace('aÉ', 'é', 'x', 'gi'), regexp_match('É', 'É', 'i'), 'É' ~ '[[:alpha:]]', 'K' ~* 'k', 'ſ' ilike 's', 'Σ' ilike 'ς', 'É' not ilike 'é', 'Ab' ilike 'aB', 'Ab' ~* 'aB', 'x y' ~ '\s'
select 'aé b' ~ '\mé'
select 'हिन्दी' ~ '^\w+$', '٣' ~ '\w', '½' ~ '[[:punct:]]', initcap('बि ba'), regexp_split_to_array('किताब घर', '\W+')
select v ilike 'é', v ~* 'é', upper(v), lower(v), initcap(v), v ~ '\w', regexp_replace(v, 'é', 'x', 'i') from unnest(array['É', 'é', 'ÉA', 'aé']) v order by v
select x.v from unnest(array['É', 'é', 'E']) x(v) join unnest(array['é', 'e']) y(v) on x.v ilike y.v order by 1
select 'É' ilike 'é', 'ÀÉ' ilike 'à_', 'ß' ilike 'SS', 'ΣΑΣ' ilike 'σας', 'ДОМ' not ilike 'дом', 'É' like 'é', 'İ' ilike 'i'
select lower('ÉÀß ΟΔΟΣ İI'), upper('éàßÿ ıi ﬁ ᾳ ǆ'), initcap('éa ÉB ǆ д''ом 1éa_ÉB x²y')
select 'É' ~* 'é', 'É' ~ 'é', 'é' ~ '[[:alpha:]]', 'É' ~ '[[:upper:]]', 'é' ~ '[[:lower:]]', 'é' ~ '[[:upper:]]', 'é' ~ '\w', 'é' ~ '\W', '٣' ~ '\d', '٣' ~ '[[:alpha:]]', '٣' ~ '[[:digit:]]'
select 'naïve café' ~ '^[[:alpha:] ]+$', 'a1é' ~ '^[^[:alpha:]]', '1é' ~ '[^[:alpha:]0]', '«é»' ~ '^[[:punct:]]', '_' ~ '[[:punct:]]', 'é' ~ '[[:punct:]]', ' é' ~ '^\s', '　' ~ '^[[:space:]]$', ' ' ~ '\s'
select regexp_replace('Ça va, mon élève?', '\m(\w)', '<\1>', 'g'), regexp_match('ÉTÉ', '[[:lower:]]+', 'i'), regexp_split_to_array('été—hiver', '[^[:alnum:]]+'), regexp_replace('a]b[c', '[][]', '.', 'g'), regexp_replace('x-y^z', '[^a-z^]', '.')
select name, upper(name) from (values ('é'), ('ß'), ('œuf'), ('ñ')) v(name) where upper(name) ilike name order by name collate "C"
select count(*), lower(n) from (values ('É'), ('é'), ('E')) v(n) group by lower(n) order by 2
select similar from (select 'É' similar to '(é|É)%' as similar, 'éa' similar to '[[:alpha:]]+' as s) x where s
show lc_ctype ;; show lc_collate
select datcollate, datctype from pg_database where datname = current_database()
select name from dept where name ilike 'É%' or upper(name) = 'ENG' order by id
select e.name, d.name from emp e join dept d on d.id = e.dept where initcap(d.name || ' é') like '% É' and e.name ~* 'a' order by e.id
