// Kudu's own Java client, driven by the harness: a program that reads one JSON object per line,
// carries out the operation with the client, and writes one JSON object per line.
//
//   {"id": 7, "client": 3, "timeout_ms": 4500, "f": "create", "name": "t1", ...}
//   {"id": 7, "answer": {...}, "frames": [...]}                  the client returned
//   {"id": 7, "error": ["NOT_FOUND", "..."], "frames": [...]}    the client threw an exception
//
// Each number has an AsyncKuduClient of its own, with one operation at a time. The client resends
// requests by itself. It notes what it sends and receives in the private traces of an RPC
// (RpcTraceFrame), which it drops when the RPC ends, so this class is in the client's package and
// keeps them: `frames` are those of all RPCs that were created while the operation ran.
//
// The program ends when its input ends, so it does not outlive the harness.

package org.apache.kudu.client;

import com.stumbleupon.async.Deferred;
import com.stumbleupon.async.TimeoutException;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.kudu.ColumnSchema;
import org.apache.kudu.Schema;
import org.apache.kudu.Type;
import org.apache.kudu.shaded.io.netty.util.HashedWheelTimer;
import org.apache.kudu.shaded.io.netty.util.Timeout;
import org.apache.kudu.shaded.io.netty.util.TimerTask;

public final class JavaClient {
  private static final String KEY = "key";
  private static final PrintStream OUT =
      new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

  private final AsyncKuduClient client;
  private final Map<String, KuduTable> tables = new ConcurrentHashMap<>();
  private volatile Frames frames = new Frames();
  private volatile boolean begun;

  private JavaClient(String masters, long timeoutMs) throws ReflectiveOperationException {
    AsyncKuduClient.AsyncKuduClientBuilder builder =
        new AsyncKuduClient.AsyncKuduClientBuilder(masters)
            .defaultAdminOperationTimeoutMs(timeoutMs * 9 / 10) // its own error is the better one
            .defaultOperationTimeoutMs(timeoutMs * 9 / 10)
            .workerCount(1);
    Field timer = AsyncKuduClient.AsyncKuduClientBuilder.class.getDeclaredField("timer");
    timer.setAccessible(true);
    timer.set(builder, new TracingTimer());
    client = builder.build();
  }

  public static void main(String[] arguments) throws Exception {
    Map<Long, JavaClient> clients = new ConcurrentHashMap<>();
    ExecutorService threads = Executors.newCachedThreadPool();
    BufferedReader lines =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      Map<String, Object> asked = Json.read(line);
      threads.execute(() -> answer(arguments[0], clients, asked));
    }
    Runtime.getRuntime().halt(0); // clients may wait for servers that are down
  }

  private static void answer(
      String masters, Map<Long, JavaClient> clients, Map<String, Object> asked) {
    Map<String, Object> answer = new LinkedHashMap<>();
    answer.put("id", asked.get("id"));
    Long number = (Long) asked.get("client");
    try {
      if (asked.get("f").equals("close")) {
        JavaClient closed = clients.remove(number);
        answer.put("answer", Map.of());
        if (closed != null) {
          closed.client.shutdown();
        }
      } else {
        JavaClient own = clients.get(number);
        if (own == null) {
          own = new JavaClient(masters, (Long) asked.get("timeout_ms"));
          clients.put(number, own);
        }
        own.run(asked, answer);
      }
    } catch (Throwable error) {
      answer.put("fatal", error.toString()); // a defect of this program, not of the client
    }
    write(answer);
  }

  private static synchronized void write(Map<String, Object> answer) {
    OUT.println(Json.write(answer));
    OUT.flush();
  }

  // --- operations ------------------------------------------------------------------------------

  private void run(Map<String, Object> asked, Map<String, Object> answer) throws Exception {
    Frames own = new Frames();
    frames = own;
    begun = !asked.get("f").equals("write");
    long timeoutMs = (Long) asked.get("timeout_ms");
    try {
      answer.put("answer", call(asked, timeoutMs));
    } catch (KuduException error) {
      refused(error, answer);
    } catch (TimeoutException error) {
      answer.put("error", List.of("OPEN", "the client did not return within " + timeoutMs + " ms"));
    } catch (IllegalArgumentException error) {
      tables.clear(); // for example, a column that is not in the schema; nothing was sent
      answer.put("error", List.of("REFUSED", String.valueOf(error.getMessage())));
    } catch (RuntimeException error) {
      if (!(error.getCause() instanceof KuduException)) {
        throw error;
      }
      refused((KuduException) error.getCause(), answer); // of a lookup for scan tokens
    }
    answer.put("frames", own.listed());
    answer.put("begun", begun);
  }

  private void refused(KuduException error, Map<String, Object> answer) {
    tables.clear();
    answer.put("error", List.of(code(error.getStatus()), text(error.getStatus())));
  }

  private Object call(Map<String, Object> asked, long timeoutMs) throws Exception {
    String name = (String) asked.get("name");
    switch ((String) asked.get("f")) {
      case "create":
        return described(create(name, asked).join(timeoutMs));
      case "alter":
        return altered(client.alterTable(name, steps(asked)).join(timeoutMs));
      case "rename":
        AlterTableOptions options =
            new AlterTableOptions().renameTable((String) asked.get("new_name")).setWait(false);
        return altered(client.alterTable(name, options).join(timeoutMs));
      case "delete":
        client.deleteTable(name).join(timeoutMs);
        return Map.of();
      case "get":
        return described(client.openTable(name).join(timeoutMs));
      case "list":
        return listed(client.getTablesList().join(timeoutMs));
      case "locate":
        return located(client.openTable(name).join(timeoutMs), timeoutMs);
      case "is-create-done":
        return Map.of("done", client.isCreateTableDone(name).join(timeoutMs).isDone());
      case "is-alter-done":
        return Map.of("done", client.isAlterTableDone(name).join(timeoutMs).isDone());
      case "write":
        return written(table(name, timeoutMs), asked, timeoutMs);
      case "scan":
        return scanned(table(name, timeoutMs), asked, timeoutMs);
      default:
        throw new IllegalStateException("no operation " + asked.get("f"));
    }
  }

  private Deferred<KuduTable> create(String name, Map<String, Object> asked) {
    List<ColumnSchema> columns = new ArrayList<>();
    columns.add(new ColumnSchema.ColumnSchemaBuilder(KEY, Type.STRING).key(true).build());
    for (Object column : (List<?>) asked.get("columns")) {
      columns.add(nullable((String) column));
    }
    CreateTableOptions options = new CreateTableOptions()
        .setNumReplicas(((Long) asked.get("replicas")).intValue())
        .setComment((String) asked.get("nonce"))
        .setWait(false);
    int buckets = ((Long) asked.get("partitions")).intValue();
    if (buckets > 1) {
      options.addHashPartitions(List.of(KEY), buckets);
    }
    options.setRangePartitionColumns(List.of());
    return client.createTable(name, new Schema(columns), options);
  }

  private static ColumnSchema nullable(String name) {
    return new ColumnSchema.ColumnSchemaBuilder(name, Type.STRING).nullable(true).build();
  }

  private static AlterTableOptions steps(Map<String, Object> asked) {
    AlterTableOptions options = new AlterTableOptions().setWait(false);
    for (Object each : (List<?>) asked.get("steps")) {
      List<?> step = (List<?>) each;
      String column = (String) step.get(1);
      switch ((String) step.get(0)) {
        case "add":
          options.addColumn(nullable(column));
          break;
        case "drop":
          options.dropColumn(column);
          break;
        default:
          options.renameColumn(column, (String) step.get(2));
      }
    }
    return options;
  }

  private static Object altered(AlterTableResponse response) {
    return Map.of("table_id", response.getTableId());
  }

  private static Object described(KuduTable table) {
    List<Object> columns = new ArrayList<>();
    List<Object> ids = new ArrayList<>();
    Schema schema = table.getSchema();
    for (ColumnSchema column : schema.getColumns()) {
      if (!column.isKey()) {
        columns.add(column.getName());
        ids.add(schema.getColumnId(column.getName()));
      }
    }
    return Map.of("table_id", table.getTableId(), "comment", table.getComment(),
        "columns", columns, "column_ids", ids);
  }

  private static Object listed(ListTablesResponse response) {
    List<Object> tables = new ArrayList<>();
    for (ListTablesResponse.TableInfo table : response.getTableInfosList()) {
      tables.add(List.of(table.getTableName(), table.getTableId()));
    }
    return Map.of("tables", tables);
  }

  private static Object located(KuduTable table, long timeoutMs) throws Exception {
    List<Object> tablets = new ArrayList<>();
    for (LocatedTablet each : table.asyncGetTabletsLocations(timeoutMs).join(timeoutMs)) {
      List<Object> replicas = new ArrayList<>();
      LocatedTablet.Replica leader = each.getLeaderReplica();
      String leads = null;
      for (LocatedTablet.Replica replica : each.getReplicas()) {
        replicas.add(replica.getRpcHost() + ":" + replica.getRpcPort());
        if (leader != null && replica.toString().equals(leader.toString())) {
          leads = replica.getRpcHost() + ":" + replica.getRpcPort();
        }
      }
      Map<String, Object> tablet = new LinkedHashMap<>();
      tablet.put("tablet_id", tabletId(each));
      tablet.put("start", hex(each.getPartition().getPartitionKeyStart()));
      tablet.put("end", hex(each.getPartition().getPartitionKeyEnd()));
      tablet.put("leader", leads);
      tablet.put("replicas", replicas);
      tablets.add(tablet);
    }
    return Map.of("table_id", table.getTableId(), "tablets", tablets);
  }

  // --- rows ------------------------------------------------------------------------------------

  private KuduTable table(String name, long timeoutMs) throws Exception {
    KuduTable table = tables.get(name);
    if (table == null) {
      table = client.openTable(name).join(timeoutMs);
      tables.put(name, table);
    }
    return table;
  }

  private Object written(KuduTable table, Map<String, Object> asked, long timeoutMs)
      throws Exception {
    List<Operation> operations = new ArrayList<>();
    List<String> tablets = new ArrayList<>();
    for (Object each : (List<?>) asked.get("rows")) {
      Operation operation = operation(table, (List<?>) each);
      operations.add(operation);
      tablets.add(tabletId(client.getTabletLocation(table, operation.partitionKey(),
          AsyncKuduClient.LookupType.POINT, timeoutMs).join(timeoutMs)));
    }
    AsyncKuduSession session = client.newSession();
    session.setFlushMode(SessionConfiguration.FlushMode.MANUAL_FLUSH);
    session.setMutationBufferSpace(operations.size());
    session.setTimeoutMillis(timeoutMs);
    begun = true;
    for (Operation operation : operations) {
      session.apply(operation);
    }
    List<Object> rows = new ArrayList<>();
    List<OperationResponse> responses = session.flush().join(timeoutMs);
    for (int place = 0; place < operations.size(); place++) {
      OperationResponse response = responses.get(place);
      RowError error = response == null ? null : response.getRowError();
      Map<String, Object> row = new LinkedHashMap<>();
      row.put("tablet", tablets.get(place));
      row.put("server", response == null ? null : response.getTsUUID());
      row.put("timestamp", response == null ? 0 : response.getWriteTimestampRaw());
      row.put("code", response == null ? "NONE" : error == null ? "OK"
          : code(error.getErrorStatus()));
      row.put("text", error == null ? "" : text(error.getErrorStatus()));
      rows.add(row);
    }
    return Map.of("table_id", table.getTableId(), "rows", rows);
  }

  private static Operation operation(KuduTable table, List<?> row) {
    Operation operation;
    switch ((String) row.get(0)) {
      case "insert":
        operation = table.newInsert();
        break;
      case "upsert":
        operation = table.newUpsert();
        break;
      case "update":
        operation = table.newUpdate();
        break;
      default:
        operation = table.newDelete();
    }
    operation.getRow().addString(KEY, (String) row.get(1));
    for (Map.Entry<?, ?> cell : ((Map<?, ?>) row.get(2)).entrySet()) {
      if (cell.getValue() == null) {
        operation.getRow().setNull((String) cell.getKey());
      } else {
        operation.getRow().addString((String) cell.getKey(), (String) cell.getValue());
      }
    }
    return operation;
  }

  /** One scanner per tablet, as Spark's tasks have; the first chooses the time of the others. */
  private Object scanned(KuduTable table, Map<String, Object> asked, long timeoutMs)
      throws Exception {
    AsyncKuduScanner.ReadMode mode =
        AsyncKuduScanner.ReadMode.valueOf((String) asked.get("mode"));
    Long at = (Long) asked.get("at");
    List<Object> parts = new ArrayList<>();
    List<KuduScanToken> tokens = tokens(table, asked, mode, at, timeoutMs);
    for (int place = 0; place < tokens.size(); place++) {
      Map<String, Object> part = part(tokens.get(place));
      parts.add(part);
      if (at == null && (Boolean) asked.get("one_time")) {
        at = (Long) part.get("timestamp");
        tokens = tokens(
            table, asked, AsyncKuduScanner.ReadMode.READ_AT_SNAPSHOT, at, timeoutMs);
      }
    }
    return Map.of("table_id", table.getTableId(), "parts", parts);
  }

  private List<KuduScanToken> tokens(KuduTable table, Map<String, Object> asked,
      AsyncKuduScanner.ReadMode mode, Long at, long timeoutMs) {
    KuduScanToken.KuduScanTokenBuilder builder =
        client.syncClient().newScanTokenBuilder(table).readMode(mode)
            .scanRequestTimeout(timeoutMs)
            .setTimeout(timeoutMs)
            .replicaSelection(ReplicaSelection.valueOf((String) asked.get("replica")));
    if (at != null) {
      builder.snapshotTimestampRaw(at);
    }
    if (asked.get("key") != null) { // finds the only tablet that may have the row
      builder.addPredicate(KuduPredicate.newComparisonPredicate(table.getSchema().getColumn(KEY),
          KuduPredicate.ComparisonOp.EQUAL, (String) asked.get("key")));
    }
    if (asked.get("start") != null) {
      builder.lowerBound(keyRow(table, (String) asked.get("start")));
    }
    if (asked.get("end") != null) {
      builder.exclusiveUpperBound(keyRow(table, (String) asked.get("end")));
    }
    return builder.build();
  }

  private static PartialRow keyRow(KuduTable table, String key) {
    PartialRow row = table.getSchema().newPartialRow();
    row.addString(KEY, key);
    return row;
  }

  private Map<String, Object> part(KuduScanToken token) throws Exception {
    List<Object> rows = new ArrayList<>();
    Map<String, Object> part = new LinkedHashMap<>();
    part.put("tablet", tabletId(token.getTablet()));
    KuduScanner scanner = token.intoScanner(client.syncClient());
    try {
      while (scanner.hasMoreRows()) {
        RowResultIterator batch = scanner.nextRows();
        if (batch == null) {
          continue;
        }
        if (batch.getTsUUID() != null) {
          part.put("server", batch.getTsUUID());
        }
        for (RowResult row : batch) {
          Map<String, Object> cells = new LinkedHashMap<>();
          for (ColumnSchema column : row.getSchema().getColumns()) {
            if (!column.getName().equals(KEY) && !row.isNull(column.getName())) {
              cells.put(column.getName(), row.getString(column.getName()));
            }
          }
          rows.add(List.of(row.getString(KEY), cells));
        }
      }
      Field inner = KuduScanner.class.getDeclaredField("asyncScanner");
      inner.setAccessible(true);
      part.put("timestamp", ((AsyncKuduScanner) inner.get(scanner)).getSnapshotTimestamp());
    } finally {
      scanner.close();
    }
    part.put("rows", rows);
    return part;
  }

  // --- parts of answers ------------------------------------------------------------------------

  private static String tabletId(LocatedTablet tablet) {
    return new String(tablet.getTabletId(), StandardCharsets.UTF_8);
  }

  private static String hex(byte[] bytes) {
    StringBuilder text = new StringBuilder();
    for (byte each : bytes) {
      text.append(String.format("%02x", each));
    }
    return text.toString();
  }

  private static String code(Status status) {
    return status == null ? "NONE" : status.getCodeName();
  }

  private static String text(Status status) {
    return status == null ? "" : status.getMessage();
  }

  // --- traces ----------------------------------------------------------------------------------

  /** The trace frames of the RPCs that one operation created. */
  private static final class Frames {
    private final long start = System.nanoTime();
    private final List<Object> frames = new ArrayList<>();
    private int calls = 0;

    synchronized int nextCall() {
      return calls++;
    }

    synchronized void add(int call, KuduRpc<?> rpc, RpcTraceFrame frame) {
      if (!frame.getRpcMethod().equals(rpc.method())) {
        return; // of a child of this RPC, which notes it itself
      }
      Map<String, Object> noted = new LinkedHashMap<>();
      noted.put("call", call);
      noted.put("method", rpc.method());
      noted.put("action", frame.getAction().name());
      noted.put("at_ns", System.nanoTime() - start);
      noted.put("server", frame.getServer() == null ? null : frame.getServer().getUuid());
      noted.put("tablet", rpc.getTablet() == null ? null : rpc.getTablet().getTabletId());
      noted.put("code", code(frame.getStatus()));
      noted.put("text", text(frame.getStatus()));
      frames.add(noted);
    }

    synchronized List<Object> listed() {
      return new ArrayList<>(frames);
    }
  }

  /** The client's timer. Every RPC starts a timeout on it before it is sent, so each is seen. */
  private final class TracingTimer extends HashedWheelTimer {
    TracingTimer() {
      super(JavaClient::daemon, 20, TimeUnit.MILLISECONDS); // as the client's own
    }

    @Override
    public Timeout newTimeout(TimerTask task, long delay, TimeUnit unit) {
      if (task instanceof KuduRpc.RpcTimeoutTask) {
        keepTraces((KuduRpc<?>.RpcTimeoutTask) task);
      }
      return super.newTimeout(task, delay, unit);
    }

    private void keepTraces(KuduRpc<?>.RpcTimeoutTask task) {
      Frames own = frames;
      try {
        Field outer = KuduRpc.RpcTimeoutTask.class.getDeclaredField("this$0");
        outer.setAccessible(true);
        KuduRpc<?> rpc = (KuduRpc<?>) outer.get(task);
        Field traces = KuduRpc.class.getDeclaredField("traces");
        traces.setAccessible(true);
        int call = own.nextCall();
        traces.set(rpc, Collections.synchronizedList(new ArrayList<RpcTraceFrame>() {
          @Override
          public boolean add(RpcTraceFrame frame) {
            own.add(call, rpc, frame);
            return super.add(frame);
          }
        }));
      } catch (ReflectiveOperationException error) {
        throw new IllegalStateException("this client's RPCs have no traces", error);
      }
    }
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work, "timer");
    thread.setDaemon(true);
    return thread;
  }

  // --- JSON ------------------------------------------------------------------------------------

  /** As much of JSON as the lines of this program need: no exponents, no fractions. */
  private static final class Json {
    private final String text;
    private int at = 0;

    private Json(String text) {
      this.text = text;
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> read(String line) {
      return (Map<String, Object>) new Json(line).value();
    }

    private char peek() {
      while (Character.isWhitespace(text.charAt(at))) {
        at++;
      }
      return text.charAt(at);
    }

    private boolean skip(char wanted) {
      boolean found = peek() == wanted;
      at += found ? 1 : 0;
      return found;
    }

    private Object value() {
      switch (peek()) {
        case '{':
          return object();
        case '[':
          return array();
        case '"':
          return string();
        case 't':
          at += 4;
          return true;
        case 'f':
          at += 5;
          return false;
        case 'n':
          at += 4;
          return null;
        default:
          int start = at;
          while (at < text.length() && "-0123456789".indexOf(text.charAt(at)) >= 0) {
            at++;
          }
          return Long.valueOf(text.substring(start, at));
      }
    }

    private Map<String, Object> object() {
      Map<String, Object> object = new LinkedHashMap<>();
      at++;
      while (!skip('}')) {
        skip(',');
        peek();
        String name = string();
        skip(':');
        object.put(name, value());
      }
      return object;
    }

    private List<Object> array() {
      List<Object> array = new ArrayList<>();
      at++;
      while (!skip(']')) {
        skip(',');
        array.add(value());
      }
      return array;
    }

    private String string() {
      StringBuilder string = new StringBuilder();
      for (at++; text.charAt(at) != '"'; at++) {
        char next = text.charAt(at);
        if (next == '\\') {
          next = text.charAt(++at);
          if (next == 'u') {
            next = (char) Integer.parseInt(text.substring(at + 1, at + 5), 16);
            at += 4;
          } else {
            int place = "bfnrt".indexOf(next);
            next = place < 0 ? next : "\b\f\n\r\t".charAt(place);
          }
        }
        string.append(next);
      }
      at++;
      return string.toString();
    }

    static String write(Object value) {
      if (value instanceof Map) {
        List<String> fields = new ArrayList<>();
        ((Map<?, ?>) value).forEach((name, each) -> fields.add(write(name) + ":" + write(each)));
        return "{" + String.join(",", fields) + "}";
      }
      if (value instanceof List) {
        List<String> parts = new ArrayList<>();
        ((List<?>) value).forEach(each -> parts.add(write(each)));
        return "[" + String.join(",", parts) + "]";
      }
      if (!(value instanceof String)) {
        return String.valueOf(value);
      }
      StringBuilder string = new StringBuilder("\"");
      for (char each : ((String) value).toCharArray()) {
        if (each < ' ' || each == '"' || each == '\\') {
          string.append(String.format("\\u%04x", (int) each));
        } else {
          string.append(each);
        }
      }
      return string.append('"').toString();
    }
  }
}
