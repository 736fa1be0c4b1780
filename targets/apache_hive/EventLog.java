package harness;

import java.util.Collections;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.TransactionalMetaStoreEventListener;
import org.apache.hadoop.hive.metastore.api.MetaException;
import org.apache.hadoop.hive.metastore.api.NotificationEvent;
import org.apache.hadoop.hive.metastore.api.Table;
import org.apache.hadoop.hive.metastore.events.AlterTableEvent;
import org.apache.hadoop.hive.metastore.events.CreateTableEvent;
import org.apache.hadoop.hive.metastore.events.DropTableEvent;
import org.apache.hadoop.hive.metastore.events.ListenerEvent;
import org.apache.hadoop.hive.metastore.messaging.EventMessage;
import org.apache.hadoop.hive.metastore.messaging.MessageBuilder;
import org.apache.hadoop.hive.metastore.messaging.json.JSONMessageEncoder;

/**
 * Writes changes of tables to Hive's notification log, in the transaction of each change.
 *
 * <p>Hive's own listener (DbNotificationListener) is in no artefact of 4.0.1 on Maven Central. This
 * one leaves to the metastore what that one does too: messages, the sequence and its lock, the row.
 */
public class EventLog extends TransactionalMetaStoreEventListener {
  private static final JSONMessageEncoder ENCODER = new JSONMessageEncoder();

  public EventLog(Configuration configuration) {
    super(configuration);
  }

  @Override
  public void onCreateTable(CreateTableEvent event) throws MetaException {
    Table table = event.getTable();
    write(event, table, MessageBuilder.getInstance()
        .buildCreateTableMessage(table, Collections.emptyIterator()));
  }

  @Override
  public void onAlterTable(AlterTableEvent event) throws MetaException {
    write(event, event.getNewTable(), MessageBuilder.getInstance().buildAlterTableMessage(
        event.getOldTable(), event.getNewTable(), event.getIsTruncateOp(), event.getWriteId()));
  }

  @Override
  public void onDropTable(DropTableEvent event) throws MetaException {
    write(event, event.getTable(), MessageBuilder.getInstance()
        .buildDropTableMessage(event.getTable()));
  }

  private static void write(ListenerEvent event, Table table, EventMessage message)
      throws MetaException {
    int seconds = (int) (System.currentTimeMillis() / 1000);
    NotificationEvent entry = new NotificationEvent(0, seconds, message.getEventType().toString(),
        ENCODER.getSerializer().serialize(message));
    entry.setCatName(table.getCatName());
    entry.setDbName(table.getDbName());
    entry.setTableName(table.getTableName());
    entry.setMessageFormat(ENCODER.getMessageFormat());
    event.getIHMSHandler().getMS().addNotificationEvent(entry);
  }
}
