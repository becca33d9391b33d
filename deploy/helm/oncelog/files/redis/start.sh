# Starts Redis with the certificate of this moment. Arguments: none.
set -eu
if [ -e /etc/oncelog/tls/tls.crt ]; then
    # /tmp outlives a restart of the container, and the files of a Secret are read-only.
    rm -rf /tmp/tls
    mkdir /tmp/tls
    cp /etc/oncelog/tls/tls.crt /etc/oncelog/tls/tls.key /etc/oncelog/tls/ca.crt /tmp/tls/
fi
exec redis-server /etc/oncelog-redis/redis.conf
