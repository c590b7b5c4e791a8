import java.sql.*;
import java.time.*;
import java.util.*;

/** What programs do through pgjdbc; prints what came back. Arguments: URL. */
public class Clients {
    static void step(String name, java.util.concurrent.Callable<Object> work) {
        try {
            System.out.println(name + " => " + work.call());
        } catch (Exception e) {
            String state = e instanceof SQLException s ? s.getSQLState() : "";
            System.out.println(name + " EXC " + state + " " + String.valueOf(e.getMessage()).lines().findFirst().orElse(""));
        }
    }

    static String row(ResultSet r) throws SQLException {
        List<String> found = new ArrayList<>();
        int n = r.getMetaData().getColumnCount();
        while (r.next()) {
            List<String> one = new ArrayList<>();
            for (int i = 1; i <= n; i++) one.add(String.valueOf(r.getString(i)));
            found.add(one.toString());
        }
        return found.toString();
    }

    public static void main(String[] args) throws Exception {
        Properties p = new Properties();
        p.setProperty("user", "kvorum");
        try (Connection c = DriverManager.getConnection(args[0], p); Statement s = c.createStatement()) {
            step("zone", () -> row(s.executeQuery("show timezone")));
            step("ddl", () -> { s.execute("create table t (id bigserial primary key, n int, v varchar(20) unique, at timestamptz, lt timestamp, d date, tm time, num numeric(10,2), ok boolean, b bytea, u uuid, tags text[], j jsonb)"); return s.getUpdateCount(); });
            step("insert", () -> {
                PreparedStatement i = c.prepareStatement("insert into t (n, v, at, lt, d, tm, num, ok, b, u, tags, j) values (?,?,?,?,?,?,?,?,?,?,?,?::jsonb)", Statement.RETURN_GENERATED_KEYS);
                i.setInt(1, 7); i.setString(2, "a"); i.setTimestamp(3, Timestamp.from(Instant.parse("2024-03-10T07:30:00Z"))); i.setObject(4, LocalDateTime.parse("2024-07-01T12:00:00"));
                i.setDate(5, java.sql.Date.valueOf("2024-02-29")); i.setTime(6, Time.valueOf("13:14:15")); i.setBigDecimal(7, new java.math.BigDecimal("1.50")); i.setBoolean(8, true); i.setBytes(9, new byte[] {1, 2}); i.setObject(10, UUID.fromString("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")); i.setArray(11, c.createArrayOf("text", new String[] {"x", null})); i.setString(12, "{\"a\": 1}");
                i.executeUpdate(); ResultSet k = i.getGeneratedKeys(); k.next(); return k.getLong("id"); });
            step("read", () -> { ResultSet r = s.executeQuery("select * from t"); r.next(); return List.of(r.getTimestamp("at").toInstant(), r.getObject("lt", LocalDateTime.class), r.getDate("d"), r.getTime("tm"), r.getBigDecimal("num"), r.getBoolean("ok"), r.getBytes("b").length, r.getObject("u"), Arrays.toString((Object[]) r.getArray("tags").getArray()), r.getString("j"), r.getString("at"), r.getObject("at", OffsetDateTime.class).toInstant()); });
            step("texts", () -> row(s.executeQuery("select at::text, to_char(at, 'HH24:MI TZ'), at || '', date_trunc('day', at), json_build_object('at', at), at at time zone 'UTC' from t")));
            step("where", () -> { PreparedStatement q = c.prepareStatement("select id from t where d = ? and at between ? and ? and lt = ? and u = ? and ok = ? and v = any(?)"); q.setDate(1, java.sql.Date.valueOf("2024-02-29")); q.setTimestamp(2, Timestamp.from(Instant.parse("2024-03-10T07:00:00Z"))); q.setTimestamp(3, Timestamp.from(Instant.parse("2024-03-10T08:00:00Z"))); q.setTimestamp(4, Timestamp.valueOf("2024-07-01 12:00:00")); q.setObject(5, UUID.fromString("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")); q.setBoolean(6, true); q.setArray(7, c.createArrayOf("varchar", new String[] {"a", "b"})); return row(q.executeQuery()); });
            step("batch", () -> { PreparedStatement i = c.prepareStatement("insert into t (n, v) values (?, ?)"); for (int n = 0; n < 20; n++) { i.setInt(1, n); i.setString(2, "b" + n); i.addBatch(); } return Arrays.stream(i.executeBatch()).sum(); });
            step("many", () -> { PreparedStatement q = c.prepareStatement("select v from t where n = ? and v like 'b%'"); String found = ""; for (int n = 0; n < 8; n++) { q.setInt(1, n); found += row(q.executeQuery()); } return found; });
            step("fetch", () -> { c.setAutoCommit(false); PreparedStatement q = c.prepareStatement("select n from t order by id"); q.setFetchSize(5); ResultSet r = q.executeQuery(); int sum = 0; while (r.next()) sum += r.getInt(1); c.commit(); c.setAutoCommit(true); return sum; });
            step("tx", () -> { c.setAutoCommit(false); c.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE); s.executeUpdate("update t set n = 100 where v = 'a'"); Savepoint sp = c.setSavepoint(); s.executeUpdate("update t set n = 101 where v = 'a'"); c.rollback(sp); c.commit(); c.setTransactionIsolation(Connection.TRANSACTION_READ_COMMITTED); c.setAutoCommit(true); return row(s.executeQuery("select n from t where v = 'a'")); });
            step("duplicate", () -> s.executeUpdate("insert into t (v) values ('a')"));
            step("after", () -> { c.setAutoCommit(false); try { s.executeUpdate("insert into t (v) values ('a')"); } catch (SQLException e) { c.rollback(); } c.setAutoCommit(true); return row(s.executeQuery("select count(*) from t")); });
            step("updatable", () -> { Statement u = c.createStatement(ResultSet.TYPE_SCROLL_INSENSITIVE, ResultSet.CONCUR_UPDATABLE); ResultSet r = u.executeQuery("select id, n, v from t where v = 'a'"); r.next(); r.updateInt("n", 55); r.updateRow(); return row(s.executeQuery("select n from t where v = 'a'")); });
            DatabaseMetaData m = c.getMetaData();
            step("tables", () -> { ResultSet r = m.getTables(null, "public", "%", new String[] {"TABLE"}); List<String> f = new ArrayList<>(); while (r.next()) f.add(r.getString("TABLE_NAME")); return f; });
            step("columns", () -> { ResultSet r = m.getColumns(null, "public", "t", null); List<String> f = new ArrayList<>(); while (r.next()) f.add(r.getString("COLUMN_NAME") + ":" + r.getString("TYPE_NAME") + ":" + r.getInt("COLUMN_SIZE") + ":" + r.getString("IS_NULLABLE") + ":" + r.getString("IS_AUTOINCREMENT")); return f; });
            step("keys", () -> { ResultSet r = m.getPrimaryKeys(null, "public", "t"); List<String> f = new ArrayList<>(); while (r.next()) f.add(r.getString("COLUMN_NAME") + ":" + r.getString("PK_NAME")); r = m.getIndexInfo(null, "public", "t", false, false); while (r.next()) f.add(r.getString("INDEX_NAME")); return f; });
            step("imported", () -> { s.execute("create table c (id int primary key, t bigint references t on delete cascade)"); ResultSet r = m.getImportedKeys(null, "public", "c"); List<String> f = new ArrayList<>(); while (r.next()) f.add(r.getString("PKTABLE_NAME") + ":" + r.getString("FK_NAME")); return f; });
            step("types", () -> { ResultSet r = m.getTypeInfo(); int n = 0; while (r.next()) n++; return n > 20; });
            step("schemas", () -> { ResultSet r = m.getSchemas(); List<String> f = new ArrayList<>(); while (r.next()) f.add(r.getString(1)); return f.contains("public"); });
            step("call", () -> { CallableStatement k = c.prepareCall("{? = call upper(?)}"); k.registerOutParameter(1, Types.VARCHAR); k.setString(2, "abc"); k.execute(); return k.getString(1); });
            step("copy", () -> new org.postgresql.copy.CopyManager((org.postgresql.core.BaseConnection) c).copyIn("copy t (n, v) from stdin (format csv)", new java.io.StringReader("1,c1\n2,c2\n")));
            step("valid", () -> c.isValid(5));
            step("cancel", () -> { Statement w = c.createStatement(); w.setQueryTimeout(1); w.execute("select pg_sleep(20)"); return 0; });
            step("drop", () -> { s.execute("drop table c, t"); return 1; });
        }
    }
}
