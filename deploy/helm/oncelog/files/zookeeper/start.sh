# Starts ZooKeeper from the jars of the image: the official image or Debian's package. Arguments: none.
set -eu
for place in /apache-zookeeper-*/lib /opt/zookeeper/lib /usr/share/zookeeper/lib /usr/share/java; do
    if compgen -G "$place/zookeeper*.jar" >/dev/null; then
        jars=$place
        break
    fi
done
if [ -z "${jars:-}" ]; then
    echo "no zookeeper*.jar in this image: set zookeeper.image to the official image" >&2
    exit 1
fi
number=$((${HOSTNAME##*-} + 1))
mkdir -p /data/state
echo "$number" >/data/state/myid
if [ -e /etc/oncelog/tls/tls.crt ]; then
    bash /etc/oncelog-zookeeper/tls.sh /etc/oncelog/tls /tmp/tls
    bash /etc/oncelog-zookeeper/renewal.sh /etc/oncelog/tls /tmp/tls "$jars" $$ "$number" 30 &
fi
metrics=yes
if ! compgen -G "$jars/zookeeper-prometheus-metrics*.jar" >/dev/null; then
    metrics=
    echo "no zookeeper-prometheus-metrics*.jar in this image: this server exports no metrics" >&2
fi
# A server tells its peers its own address, and its host name may still resolve to the previous pod. With 0.0.0.0 as its own
# address, the peers resolve the name themselves each time.
while IFS= read -r line; do
    case $line in
    "server.$number="*) line="server.$number=0.0.0.0:${line#*:}" ;;
    metricsProvider.*) [ "$metrics" ] || continue ;;
    esac
    printf '%s\n' "$line"
done </etc/oncelog-zookeeper/zoo.cfg >/tmp/zoo.cfg
# Only the C1 compiler: it halves the CPU time of a start, and the load is always low.
# An elected leader may start to listen later than its followers try to connect. After five attempts they would elect again.
exec java -Xmx"${HEAP_MEGABYTES}m" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError -XX:-UsePerfData \
    -Djava.security.properties=/etc/oncelog-zookeeper/java.security -Dzookeeper.jmx.log4j.disable=true -Dzookeeper.leaderConnectDelayDuringRetryMs=400 \
    -Dlogback.configurationFile=/etc/oncelog-zookeeper/logback.xml -Dlog4j2.configurationFile=/etc/oncelog-zookeeper/log4j2.properties \
    -Dlog4j.configuration=file:/etc/oncelog-zookeeper/log4j.properties \
    -cp "/etc/oncelog-zookeeper:$jars/*" org.apache.zookeeper.server.quorum.QuorumPeerMain /tmp/zoo.cfg
