{{/* Tokens without a program: a JSON web token (HS256) is three pieces of base64 and HMAC-SHA256, of which Helm has the hash. So the chart needs no Job with the
right to write Secrets, and the tokens follow from the key, which is all that is kept. */}}

{{/* key: 64 letters and digits, each one byte, so that they are just a block of the hash; role: whom the token is for. */}}
{{- define "oncelog.token" -}}
{{- $head := dict "alg" "HS256" "typ" "JWT" | toJson | b64enc -}}
{{- $claims := dict "sub" .role "aud" "oncelog" | toJson | b64enc -}}
{{- $signed := include "oncelog.urlSafe" (printf "%s.%s" $head $claims) -}}
{{- /* RFC 2104: H(key xor 0x5c…, H(key xor 0x36…, text)) */ -}}
{{- $inner := printf "%s%s" (include "oncelog.keyXor" (dict "key" .key "high" (list 3 2 1 0 7 6 5 4) "low" (list 6 7 4 5 2 3 0 1 14 15 12 13 10 11 8 9))) $signed | sha256sum -}}
{{- $outer := printf "%s%s" (include "oncelog.keyXor" (dict "key" .key "high" (list 5 4 7 6 1 0 3 2) "low" (list 12 13 14 15 8 9 10 11 4 5 6 7 0 1 2 3))) (include "oncelog.base64OfHex" $inner | b64dec) | sha256sum -}}
{{- printf "%s.%s" $signed (include "oncelog.urlSafe" (include "oncelog.base64OfHex" $outer)) -}}
{{- end }}

{{- define "oncelog.urlSafe" -}}
{{- . | replace "+" "-" | replace "/" "_" | replace "=" "" -}}
{{- end }}

{{/* The key xor one repeated byte. high, low: what becomes of the upper and the lower four bits. */}}
{{- define "oncelog.keyXor" -}}
{{- $bytes := list -}}
{{- range $place := until 64 -}}
{{- $byte := index $.key $place | int -}}
{{- $bytes = append $bytes (printf "%c" (add (mul 16 (index $.high (div $byte 16 | int))) (index $.low (mod $byte 16 | int)))) -}}
{{- end -}}
{{- join "" $bytes -}}
{{- end }}

{{/* 64 digits are 32 bytes; two zeros fill them up to 22 threes of digits, each of which is two signs. */}}
{{- define "oncelog.base64OfHex" -}}
{{- $digits := dict "0" 0 "1" 1 "2" 2 "3" 3 "4" 4 "5" 5 "6" 6 "7" 7 "8" 8 "9" 9 "a" 10 "b" 11 "c" 12 "d" 13 "e" 14 "f" 15 -}}
{{- $signs := "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/" -}}
{{- $hex := printf "%s00" . -}}
{{- $out := list -}}
{{- range $group := until 22 -}}
{{- $at := mul $group 3 | int -}}
{{- $value := 0 -}}
{{- range $digit := splitList "" (substr $at (add $at 3 | int) $hex) }}{{ $value = add (mul $value 16) (get $digits $digit) }}{{ end -}}
{{- $high := div $value 64 | int -}}
{{- $low := mod $value 64 | int -}}
{{- $out = append $out (printf "%s%s" (substr $high (add $high 1 | int) $signs) (substr $low (add $low 1 | int) $signs)) -}}
{{- end -}}
{{- printf "%s=" (join "" $out | trunc 43) -}}
{{- end }}
