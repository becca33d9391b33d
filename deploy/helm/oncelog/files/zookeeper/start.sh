# Starts ZooKeeper from the jars of whatever image this is: the official one, or Debian's package. Arguments: none.
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
# A server tells the others where it is. Its own name may still lead to the pod before it; with no address of its own the
# others ask for its name themselves, each time.
while IFS= read -r line; do
    case $line in "server.$number="*) line="server.$number=0.0.0.0:${line#*:}" ;; esac
    printf '%s\n' "$line"
done </etc/oncelog-zookeeper/zoo.cfg >/tmp/zoo.cfg
# One compiler, the quick one: a start then takes half the processor, and what is asked here is never much.
# Who was chosen may listen a moment later than the others look for it; after five tries they would choose again.
exec java -Xmx"${HEAP_MEGABYTES}m" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError -XX:-UsePerfData \
    -Djava.security.properties=/etc/oncelog-zookeeper/java.security -Dzookeeper.jmx.log4j.disable=true -Dzookeeper.leaderConnectDelayDuringRetryMs=400 \
    -Dlogback.configurationFile=/etc/oncelog-zookeeper/logback.xml -Dlog4j2.configurationFile=/etc/oncelog-zookeeper/log4j2.properties \
    -Dlog4j.configuration=file:/etc/oncelog-zookeeper/log4j.properties \
    -cp "/etc/oncelog-zookeeper:$jars/*" org.apache.zookeeper.server.quorum.QuorumPeerMain /tmp/zoo.cfg
