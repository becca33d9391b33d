# What zkServer.sh and zkCli.sh read first: the variables of ZooKeeper's own release, with Debian's jars. Debian's file
# would override where the configuration is.
ZOOCFGDIR="${ZOOCFGDIR:-/conf}"
ZOOCFG="$ZOOCFGDIR/${ZOOCFG:-zoo.cfg}"
ZOO_LOG_DIR="${ZOO_LOG_DIR:-/logs}"
JAVA="${JAVA_HOME:+$JAVA_HOME/bin/}java"
CLASSPATH="$ZOOCFGDIR:/apache-zookeeper-debian/lib/*${CLASSPATH:+:$CLASSPATH}"
SERVER_JVMFLAGS="-Xmx${ZK_SERVER_HEAP:-1000}m ${SERVER_JVMFLAGS:-}"
CLIENT_JVMFLAGS="-Xmx${ZK_CLIENT_HEAP:-256}m ${CLIENT_JVMFLAGS:-}"
JMXDISABLE="${JMXDISABLE:-true}"
ZOOMAIN=org.apache.zookeeper.server.quorum.QuorumPeerMain
