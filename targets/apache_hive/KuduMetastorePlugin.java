package org.apache.kudu.hive.metastore;

import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.TransactionalMetaStoreEventListener;
import org.apache.hadoop.hive.metastore.api.EnvironmentContext;
import org.apache.hadoop.hive.metastore.api.MetaException;
import org.apache.hadoop.hive.metastore.api.Table;
import org.apache.hadoop.hive.metastore.events.AlterTableEvent;
import org.apache.hadoop.hive.metastore.events.CreateTableEvent;
import org.apache.hadoop.hive.metastore.events.DropTableEvent;
import org.apache.hadoop.hive.metastore.events.ListenerEvent;

/**
 * The rules of Kudu's plug-in for the metastore, as {@code targets.hive.metastore.kudu_rules} has
 * them for bundled metastores.
 *
 * <p>Kudu's own plug-in is in no artefact on Maven Central, and masters refuse a metastore whose
 * configuration does not name it. Hence the name of this class. Kudu's also asks the masters
 * whether they use a metastore at all; here they always do.
 */
public class KuduMetastorePlugin extends TransactionalMetaStoreEventListener {
  private static final String HANDLER = "org.apache.hadoop.hive.kudu.KuduStorageHandler";
  private static final String LEGACY = "com.cloudera.kudu.hive.KuduStorageHandler";
  private static final String TABLE_ID = "kudu.table_id";
  private static final String[] OWN = {TABLE_ID, "kudu.cluster_id"};
  private static final String[] REQUIRED = {TABLE_ID, "kudu.master_addresses"};

  public KuduMetastorePlugin(Configuration configuration) {
    super(configuration);
  }

  @Override
  public void onCreateTable(CreateTableEvent event) throws MetaException {
    Table table = event.getTable();
    if (!isKudu(table)) {
      refuseKeys(table);
    } else if (isSynchronized(table)) {
      demand(isOfMaster(event), table, "can only be created by Kudu's masters");
      demandKeys(table);
    }
  }

  @Override
  public void onAlterTable(AlterTableEvent event) throws MetaException {
    Table before = event.getOldTable();
    Table after = event.getNewTable();
    if (!isKudu(after)) {
      refuseKeys(after);
    }
    boolean was = isKudu(before) && isSynchronized(before);
    boolean is = isKudu(after) && isSynchronized(after);
    if (is) {
      demandKeys(after);
    }
    if (was && is && !"false".equals(context(event).get("kudu.check_id"))) {
      demand(id(before).equals(id(after)), before, "must keep its " + TABLE_ID);
    }
    if ((was || is) && !isOfMaster(event)) {
      demand(was == is, before, "can only start or stop being synchronized through Kudu");
      demand(before.getSd().getCols().equals(after.getSd().getCols()), before,
          "can only get columns from Kudu's masters");
    }
  }

  @Override
  public void onDropTable(DropTableEvent event) throws MetaException {
    Table table = event.getTable();
    String meant = context(event).get(TABLE_ID);
    if (meant != null && isSynchronized(table)) {
      demand(meant.equals(id(table)), table, "does not have the " + TABLE_ID + " " + meant);
    }
  }

  private static boolean isKudu(Table table) {
    return HANDLER.equals(table.getParameters().get("storage_handler"));
  }

  private static boolean isSynchronized(Table table) {
    Map<String, String> parameters = table.getParameters();
    return "MANAGED_TABLE".equals(table.getTableType())
        || Boolean.parseBoolean(parameters.get("EXTERNAL"))
        && Boolean.parseBoolean(parameters.get("external.table.purge"));
  }

  private static String id(Table table) {
    return table.getParameters().getOrDefault(TABLE_ID, "");
  }

  private static boolean isOfMaster(ListenerEvent event) {
    return Boolean.parseBoolean(context(event).get("kudu.master_event"));
  }

  private static Map<String, String> context(ListenerEvent event) {
    EnvironmentContext context = event.getEnvironmentContext();
    boolean isEmpty = context == null || context.getProperties() == null;
    return isEmpty ? Map.of() : context.getProperties();
  }

  private static void demandKeys(Table table) throws MetaException {
    for (String key : REQUIRED) {
      demand(!table.getParameters().getOrDefault(key, "").isEmpty(), table, "must have " + key);
    }
  }

  private static void refuseKeys(Table table) throws MetaException {
    if (LEGACY.equals(table.getParameters().get("storage_handler"))) {
      return;
    }
    for (String key : OWN) {
      demand(!table.getParameters().containsKey(key), table,
          "is not stored in Kudu, so it may not have " + key);
    }
  }

  private static void demand(boolean ok, Table table, String rule) throws MetaException {
    if (!ok) {
      throw new MetaException(
          "Kudu table " + table.getDbName() + "." + table.getTableName() + " " + rule);
    }
  }
}
