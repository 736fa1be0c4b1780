# Starts one of two servers: the first as the primary, the second as its standby. MODE is "COMMIT without failover"
# or "COMMIT with failover". With failover, a standby that misses the primary for three seconds promotes itself,
# and a former primary that finds its successor when it starts becomes a standby.
set -eu
commit=${MODE%% *} failover=${MODE#* }
for host in $HOSTS; do
    [ "$host" = "$SELF" ] || peer="host=$host port=5432 user=postgres"
done

finds_primary() {
    PGCONNECT_TIMEOUT=2 psql "$peer target_session_attrs=primary" --command='select 1' >/dev/null 2>&1
}

copy() {
    rm -rf "$PGDATA.new"
    pg_basebackup --pgdata="$PGDATA.new" --dbname="$peer" --checkpoint=fast
    touch "$PGDATA.new/standby.signal"
    rm -rf "$PGDATA"
    mv "$PGDATA.new" "$PGDATA"
}

promote_later() {
    seen=$(date +%s)
    while [ $(($(date +%s) - seen)) -lt 3 ]; do
        sleep 0.5
        if finds_primary; then seen=$(date +%s); fi
    done
    pg_ctl promote
}

if [ "$NUMBER" = 1 ] && [ ! -d "$PGDATA" ]; then
    rm -rf "$PGDATA.new"
    initdb --pgdata="$PGDATA.new" --username=postgres --auth=trust
    echo 'host all,replication all all trust' >>"$PGDATA.new/pg_hba.conf"
    mv "$PGDATA.new" "$PGDATA"
elif [ ! -d "$PGDATA" ]; then
    until finds_primary; do sleep 0.2; done
    copy
elif [ "$failover" = "with failover" ] && [ ! -e "$PGDATA/standby.signal" ] && finds_primary; then
    copy
fi
if [ "$failover" = "with failover" ] && [ -e "$PGDATA/standby.signal" ]; then
    promote_later &
fi
rm -f "$PGDATA/postmaster.pid"
exec postgres --config-file="$FILES/postgresql.conf" -c hba_file="$PGDATA/pg_hba.conf" \
    -c primary_conninfo="$peer" -c synchronous_commit="$commit"
