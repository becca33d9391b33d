# Sends a four-letter command to this server, and succeeds if the response contains the expected text. Arguments: command, expected.
exec 3<>/dev/tcp/127.0.0.1/2181 || exit 1
printf '%s' "$1" >&3
while IFS= read -r -t 3 line <&3 || [ -n "$line" ]; do
    case $line in *"$2"*) exit 0 ;; esac
done
exit 1
