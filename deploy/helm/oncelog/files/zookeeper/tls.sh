# Writes keystore.pem and truststore.pem to /tmp/tls, as Java reads them, from the files of the release's TLS Secret. Arguments: the directory of the
# Secret, the directory to write to. ZooKeeper reads changed files again.
set -eu
source=$1
target=$2

# Java reads keys in PKCS #8 only. Standard input: a key as `RSA PRIVATE KEY` (PKCS #1). Standard output: the same key with the header of PKCS #8.
wrapped() {
    local key inner algorithm=300d06092a864886f70d0101010500 version=020100
    key=$(sed '/-----/d' | tr -d '\r\n' | base64 -d | od -An -v -tx1 | tr -d ' \n')
    inner=$(printf '0482%04x%s' $((${#key} / 2)) "$key")
    inner=$(printf '3082%04x%s' $(((${#version} + ${#algorithm} + ${#inner}) / 2)) "$version$algorithm$inner")
    echo '-----BEGIN PRIVATE KEY-----'
    printf '%b' "$(sed 's/../\\x&/g' <<<"$inner")" | base64 -w 64
    echo '-----END PRIVATE KEY-----'
}

key() {
    case $(head -n 1 "$source/tls.key") in
    '-----BEGIN PRIVATE KEY-----'*) cat "$source/tls.key" ;;
    '-----BEGIN RSA PRIVATE KEY-----'*) wrapped <"$source/tls.key" ;;
    *)
        echo "tls.key in the TLS Secret is neither 'PRIVATE KEY' (PKCS #8) nor 'RSA PRIVATE KEY': convert it with openssl pkcs8 -topk8 -nocrypt" >&2
        return 1
        ;;
    esac
}

umask 077
mkdir -p "$target"
key >"$target/keystore.new"
cat "$source/tls.crt" >>"$target/keystore.new"
cat "$source/ca.crt" >"$target/truststore.new"
for name in keystore truststore; do
    # Unchanged files keep their time, so that ZooKeeper does not read them again.
    if cmp -s "$target/$name.new" "$target/$name.pem"; then rm "$target/$name.new"; else mv "$target/$name.new" "$target/$name.pem"; fi
done
