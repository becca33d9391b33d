# Succeeds if Redis answers a ping with the expected text. Argument: the expected answers, as an extended regular expression.
# Redis reads its password and its certificate only at its start. After a change of one of them this fails, so that Kubernetes restarts the container.
if [ -e /etc/oncelog/tls/tls.crt ]; then
    cmp -s /etc/oncelog/tls/tls.crt /tmp/tls/tls.crt || exit 1
fi
read -r _ REDISCLI_AUTH </etc/oncelog-redis/password.conf
export REDISCLI_AUTH
redis-cli -s /tmp/redis.sock ping | grep -qE "$1"
