# Asks this server a word of four letters; succeeds when the answer holds what is expected. Arguments: word, expected.
exec 3<>/dev/tcp/127.0.0.1/2181 || exit 1
printf '%s' "$1" >&3
while IFS= read -r -t 3 line <&3 || [ -n "$line" ]; do
    case $line in *"$2"*) exit 0 ;; esac
done
exit 1
