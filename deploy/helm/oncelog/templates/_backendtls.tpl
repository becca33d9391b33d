{{/* TLS of ZooKeeper and Redis in this release. Both use the release's certificate, which contains the name `oncelog`. The four modes are the steps of a
change without an interruption: `off`; `accept`: plaintext is used, TLS is accepted; `prefer`: TLS is used, plaintext is accepted; `require`. */}}

{{/* The mode that applies. Arguments: root, component (`zookeeper` or `redis`). A release keeps the mode that its ConfigMap names. */}}
{{- define "oncelog.tlsMode" -}}
{{- $values := get .root.Values .component -}}
{{- $modes := list "off" "accept" "prefer" "require" -}}
{{- $mode := $values.tls.mode -}}
{{- if and (not .root.Values.tls.enabled) $mode (ne $mode "off") -}}
{{- fail (printf "%s.tls.mode is %s, but tls.enabled is false: set tls.enabled=true, or %s.tls.mode=off." .component $mode .component) -}}
{{- end -}}
{{- if not .root.Values.tls.enabled -}}
off
{{- else -}}
{{- $found := lookup "v1" "ConfigMap" .root.Release.Namespace (printf "%s-%s" (include "oncelog.fullname" .root) .component) -}}
{{- $kept := ternary (default "off" (dig "data" "tls-mode" "" $found)) "" (not (empty $found)) -}}
{{- $mode = default (default "require" $kept) $mode -}}
{{- if $kept -}}
{{- $step := 0 -}}
{{- range $number, $each := $modes -}}
{{- if eq $each $mode }}{{ $step = add $step $number }}{{ end -}}
{{- if eq $each $kept }}{{ $step = sub $step $number }}{{ end -}}
{{- end -}}
{{- if gt (max $step (mul -1 $step) | int) 1 -}}
{{- fail (printf "%s.tls.mode cannot change from %s to %s in one upgrade: pods with the former mode could not connect to those with the new one. Change it in steps, and wait for each upgrade: %s." .component $kept $mode (join ", " $modes)) -}}
{{- end -}}
{{- end -}}
{{- $mode -}}
{{- end -}}
{{- end }}

{{/* Not empty if clients connect with TLS. */}}
{{- define "oncelog.usesTls" -}}
{{- if has (include "oncelog.tlsMode" .) (list "prefer" "require") }}yes{{ end -}}
{{- end }}

{{/* Another value when this chart replaces the certificate: then the pods of the component restart one after the other, and `helm upgrade --wait` waits
for them. Redis serves the certificate of its start, and so does ZooKeeper before 3.7.2, 3.8.1 and 3.9.0. Any other upgrade keeps the value. */}}
{{- define "oncelog.servedCertificate" -}}
{{- $values := .root.Values -}}
{{- $namespace := .root.Release.Namespace -}}
{{- $next := dig "data" "next.crt" "" (lookup "v1" "Secret" $namespace (include "oncelog.tlsSecret" .root)) -}}
{{- if and $next (has $values.tls.rotation (list "switch" "finish")) -}}
{{- sha256sum $next -}}
{{- else -}}
{{- $kept := lookup "apps/v1" "StatefulSet" $namespace (printf "%s-%s" (include "oncelog.fullname" .root) .component) -}}
{{- dig "spec" "template" "metadata" "annotations" "checksum/certificate" "" $kept -}}
{{- end -}}
{{- end }}

{{/* The volume of certificate, key and CA for a pod of the component, and its mount. */}}
{{- define "oncelog.backendTlsVolume" -}}
{{- if ne (include "oncelog.tlsMode" .) "off" }}
- name: tls
  secret: {secretName: {{ include "oncelog.tlsSecret" .root }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{- define "oncelog.backendTlsMount" -}}
{{- if ne (include "oncelog.tlsMode" .) "off" }}
- {name: tls, mountPath: /etc/oncelog/tls, readOnly: true}
{{- end }}
{{- end }}

{{/* Settings of the services for their connections to ZooKeeper. */}}
{{- define "oncelog.zookeeperTlsEnvironment" -}}
{{- if .Values.zookeeper.enabled }}
{{- if include "oncelog.usesTls" (dict "root" . "component" "zookeeper") }}
- {name: ONCELOG_ZOOKEEPER_TLS, value: "true"}
- {name: ONCELOG_ZOOKEEPER_TLS_CA_FILE, value: /etc/oncelog/tls/ca.crt}
- {name: ONCELOG_ZOOKEEPER_TLS_SERVER_NAME, value: oncelog}
{{- end }}
{{- else if .Values.zookeeper.external.tls }}
- {name: ONCELOG_ZOOKEEPER_TLS, value: "true"}
{{- if .Values.zookeeper.external.tlsSecret }}
- {name: ONCELOG_ZOOKEEPER_TLS_CA_FILE, value: /etc/oncelog/zookeeper-tls/ca.crt}
{{- if .Values.zookeeper.external.clientCertificate }}
- {name: ONCELOG_ZOOKEEPER_TLS_CERTIFICATE_FILE, value: /etc/oncelog/zookeeper-tls/tls.crt}
- {name: ONCELOG_ZOOKEEPER_TLS_KEY_FILE, value: /etc/oncelog/zookeeper-tls/tls.key}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
