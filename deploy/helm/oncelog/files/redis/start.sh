# Starts Redis with the certificate of this moment. Arguments: none.
set -eu
if [ -e /etc/oncelog/tls/tls.crt ]; then
    mkdir -p /tmp/tls
    cp /etc/oncelog/tls/tls.crt /etc/oncelog/tls/tls.key /etc/oncelog/tls/ca.crt /tmp/tls/
fi
exec redis-server /etc/oncelog-redis/redis.conf
