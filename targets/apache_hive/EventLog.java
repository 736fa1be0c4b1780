package harness;

import java.util.Collections;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.HMSHandler;
import org.apache.hadoop.hive.metastore.TransactionalMetaStoreEventListener;
import org.apache.hadoop.hive.metastore.api.MetaException;
import org.apache.hadoop.hive.metastore.api.NotificationEvent;
import org.apache.hadoop.hive.metastore.api.Table;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf.ConfVars;
import org.apache.hadoop.hive.metastore.events.AlterTableEvent;
import org.apache.hadoop.hive.metastore.events.CreateTableEvent;
import org.apache.hadoop.hive.metastore.events.DropTableEvent;
import org.apache.hadoop.hive.metastore.events.ListenerEvent;
import org.apache.hadoop.hive.metastore.messaging.EventMessage;
import org.apache.hadoop.hive.metastore.messaging.MessageBuilder;
import org.apache.hadoop.hive.metastore.messaging.json.JSONMessageEncoder;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Writes changes of tables to Hive's notification log, in the transaction of each change.
 *
 * <p>Hive's own listener (DbNotificationListener) is in no artefact of 4.0.1 on Maven Central. This
 * one leaves to the metastore what that one does too: messages, the sequence and its lock, the row,
 * and what old events are. Both have one thread of each metastore clean them.
 */
public class EventLog extends TransactionalMetaStoreEventListener {
  private static final Logger LOG = LoggerFactory.getLogger(EventLog.class);
  private static final JSONMessageEncoder ENCODER = new JSONMessageEncoder();
  private static ScheduledExecutorService cleaner;

  public EventLog(Configuration configuration) {
    super(configuration);
    startCleaner(configuration);
  }

  /** Once for all listeners of this metastore: there is one for each of its handlers. */
  private static synchronized void startCleaner(Configuration configuration) {
    if (cleaner != null) {
      return;
    }
    cleaner = Executors.newSingleThreadScheduledExecutor(work -> {
      Thread thread = new Thread(work, "event-cleaner");
      thread.setDaemon(true);
      return thread;
    });
    long everyMs = MetastoreConf.getTimeVar(
        configuration, ConfVars.EVENT_DB_LISTENER_CLEAN_INTERVAL, TimeUnit.MILLISECONDS);
    cleaner.scheduleWithFixedDelay(
        () -> clean(configuration), everyMs, everyMs, TimeUnit.MILLISECONDS);
  }

  private static void clean(Configuration configuration) {
    int seconds = (int) MetastoreConf.getTimeVar(
        configuration, ConfVars.EVENT_DB_LISTENER_TTL, TimeUnit.SECONDS);
    try {
      HMSHandler.getMSForConf(configuration).cleanNotificationEvents(seconds);
    } catch (MetaException | RuntimeException failure) {
      LOG.warn("no events were cleaned; the next round may", failure);
    }
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
