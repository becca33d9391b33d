# Takes the certificate again when it is renewed, for as long as the server runs: Kubernetes updates the files of the Secret then.
# Arguments: those of tls.sh; the directory of ZooKeeper's jars; the server's process and its number, from 1 on; seconds between two looks.
set -u
source=$1 target=$2 jars=$3 server=$4 number=$5 every_s=$6
here=$(dirname "$0")

# Before 3.7.2, 3.8.1 and 3.9.0 ZooKeeper serves its clients the certificate of its start.
restarts=yes
for jar in "$jars"/zookeeper-[0-9]*.jar; do
    version=${jar##*/zookeeper-}
    case ${version%.jar} in
    '[0-9]*' | 3.[0-6].* | 3.7.[01] | 3.7.[01]-* | 3.8.0 | 3.8.0-*) ;;
    *) restarts= ;;
    esac
done

served=$(cksum <"$target/keystore.pem")
looks=0
while sleep "$every_s" && kill -0 "$server" 2>/dev/null; do
    bash "$here/tls.sh" "$source" "$target" || continue
    [ "$restarts" ] && [ "$(cksum <"$target/keystore.pem")" != "$served" ] || continue
    looks=$((looks + 1))
    # Two minutes after the server before this one, and not while there is no leader.
    if [ "$looks" -ge $((4 * number)) ] && bash "$here/ask.sh" srvr Mode:; then
        echo "the certificate has changed, and this version of ZooKeeper reads it at its start only: the server starts again" >&2
        kill "$server"
    fi
done
