{{/* The container of an Oncelog service. module: the program, first argument of the image; advertised: its advertised host; own: settings that the chart
sets, by variable; ports: {name: number} in addition to grpc and health. */}}
{{- define "oncelog.serviceContainer" -}}
- name: {{ .component }}
  image: {{ include "oncelog.serviceImage" . }}
  imagePullPolicy: {{ default .root.Values.image.pullPolicy .values.image.pullPolicy }}
  args: [oncelog.{{ .module }}]
  {{- include "oncelog.containerSecurity" . | nindent 2 }}
  env:
    {{- include "oncelog.serviceEnvironment" . | nindent 4 }}
  ports:
    - {name: grpc, containerPort: 6650}
    - {name: health, containerPort: 8081}
    {{- range $name, $port := .ports }}
    - {name: {{ $name }}, containerPort: {{ $port }}}
    {{- end }}
  {{- include "oncelog.httpProbes" . | nindent 2 }}
  {{- include "oncelog.preStop" . | nindent 2 }}
  {{- with .values.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    {{- if .values.persistence }}
    - {name: data, mountPath: /data}
    {{- end }}
    {{- include "oncelog.secretMounts" .root | nindent 4 }}
    {{- if .root.Values.zookeeper.auth.enabled }}
    - {name: zookeeper-auth, mountPath: /etc/oncelog/zookeeper, readOnly: true}
    {{- end }}
    {{- if and (not .root.Values.zookeeper.enabled) .root.Values.zookeeper.external.tlsSecret }}
    - {name: zookeeper-tls, mountPath: /etc/oncelog/zookeeper-tls, readOnly: true}
    {{- end }}
    {{- with .mounts }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- with include "oncelog.extraMounts" . }}
    {{- . | trim | nindent 4 }}
    {{- end }}
{{- with include "oncelog.sidecars" . }}
{{ . | trim }}
{{- end }}
{{- end }}

{{- define "oncelog.serviceEnvironment" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- {name: ONCELOG_LISTEN_HOST, value: {{ .root.Values.listenHost | quote }}}
- {name: ONCELOG_ADVERTISED_HOST, value: {{ .advertised | quote }}}
- {name: ONCELOG_GRPC_PORT, value: "6650"}
- {name: ONCELOG_HEALTH_PORT, value: "8081"}
- {name: ONCELOG_ZOOKEEPER_HOSTS, value: {{ include "oncelog.zookeeperHosts" .root | quote }}}
{{- include "oncelog.zookeeperTlsEnvironment" .root }}
{{- if .root.Values.zookeeper.auth.enabled }}
- {name: ONCELOG_ZOOKEEPER_AUTH_FILE, value: /etc/oncelog/zookeeper/auth}
{{- end }}
{{- range $name, $value := .own }}
- {name: {{ $name }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- $settings := merge (deepCopy .values.settings) .root.Values.settings }}
{{- if not .root.Values.auth.enabled }}{{ $_ := set $settings "httpHosts" (include "oncelog.httpHosts" (dict "root" .root "more" $settings.httpHosts)) }}{{ end }}
{{- range $name, $value := $settings }}
{{- if not (kindIs "invalid" $value) }}
- {name: ONCELOG_{{ $name | snakecase | upper }}, value: {{ include "oncelog.plain" $value | quote }}}
{{- end }}
{{- end }}
{{- include "oncelog.securityEnvironment" .root }}
{{- /* Only topic owners export traces. */}}
{{- if and (eq .component "owner") .root.Values.otel.endpoint }}
- {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ .root.Values.otel.endpoint | quote }}}
- {name: OTEL_RESOURCE_ATTRIBUTES, value: "service.namespace={{ .root.Release.Name }},k8s.namespace.name={{ .root.Release.Namespace }},k8s.pod.name=$(POD_NAME)"}
- {name: OTEL_TRACES_SAMPLER, value: parentbased_traceidratio}
- {name: OTEL_TRACES_SAMPLER_ARG, value: {{ .root.Values.otel.samplingRatio | quote }}}
{{- end }}
{{- with .environment }}
{{ . }}
{{- end }}
{{- with .values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Helm parses numbers as floats, which would be rendered as 1.073741824e+09. */}}
{{- define "oncelog.plain" -}}
{{- if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end -}}
{{- end }}

{{- define "oncelog.securityEnvironment" -}}
{{- if .Values.tls.enabled }}
- {name: ONCELOG_TLS_CERTIFICATE_FILE, value: /etc/oncelog/tls/tls.crt}
- {name: ONCELOG_TLS_KEY_FILE, value: /etc/oncelog/tls/tls.key}
- {name: ONCELOG_TLS_CA_FILE, value: /etc/oncelog/tls/ca.crt}
{{- end }}
{{- if .Values.auth.enabled }}
- {name: ONCELOG_AUTH_KEY_FILE, value: /etc/oncelog/auth/key}
- {name: ONCELOG_AUTH_TOKEN_FILE, value: /etc/oncelog/auth/service-token}
- {name: ONCELOG_AUTH_SUPERUSERS, value: {{ concat (list .Values.auth.serviceRole .Values.auth.adminRole) (include "oncelog.pipelineSuperusers" . | fromJsonArray) .Values.auth.superusers | uniq | join "," | quote }}}
{{- end }}
{{- end }}

{{- define "oncelog.secretMounts" -}}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /etc/oncelog/tls, readOnly: true}
{{- end }}
{{- if .Values.auth.enabled }}
- {name: auth, mountPath: /etc/oncelog/auth, readOnly: true}
{{- end }}
{{- end }}

{{/* For the three Oncelog services only. */}}
{{- define "oncelog.zookeeperVolume" -}}
{{- if .Values.zookeeper.auth.enabled }}
- name: zookeeper-auth
  secret:
    secretName: {{ include "oncelog.zookeeperSecret" . }}
    defaultMode: 0440
    items: [{key: auth, path: auth}]
{{- end }}
{{- if and (not .Values.zookeeper.enabled) .Values.zookeeper.external.tlsSecret }}
- name: zookeeper-tls
  secret: {secretName: {{ .Values.zookeeper.external.tlsSecret }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* keys: the keys of the token Secret that the pod needs. Only services get the private key of the certificate. */}}
{{- define "oncelog.secretVolumes" -}}
{{- if .root.Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "oncelog.tlsSecret" .root }}
    defaultMode: 0440
    {{- with .tlsKeys }}
    items:
      {{- range . }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
    {{- end }}
{{- end }}
{{- if .root.Values.auth.enabled }}
- name: auth
  secret:
    secretName: {{ include "oncelog.authSecret" .root }}
    defaultMode: 0440
    items:
      {{- range .keys }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end }}
{{- end }}

{{/* Environment of the command line in a pod of this release: CA and administrator's token, from the files that the services mount. */}}
{{- define "oncelog.clientEnvironment" -}}
- {name: ONCELOG_URL, value: {{ include "oncelog.url" . | quote }}}
- {name: ONCELOG_ADMIN_URL, value: {{ include "oncelog.adminUrl" . | quote }}}
{{- if .Values.tls.enabled }}
- {name: ONCELOG_TLS_CA_FILE, value: /etc/oncelog/tls/ca.crt}
{{- end }}
{{- if .Values.auth.enabled }}
- {name: ONCELOG_TOKEN_FILE, value: /etc/oncelog/auth/admin-token}
{{- end }}
{{- end }}

{{/* The same for `kubectl exec ... -- oncelog ...` in a metadata pod. A user who may do this can read the token in any case. */}}
{{- define "oncelog.consoleEnvironment" -}}
- {name: ONCELOG_URL, value: {{ include "oncelog.url" . | quote }}}
- {name: ONCELOG_ADMIN_URL, value: {{ include "oncelog.adminUrl" . | quote }}}
{{- if .Values.auth.enabled }}
- {name: ONCELOG_TOKEN_FILE, value: /etc/oncelog/auth/service-token}
{{- end }}
{{- end }}

{{/* The metadata services use Redis for idempotency keys. The URL of an external Redis may contain a password, so it is mounted as a file, which is reloaded
when it changes. */}}
{{- define "oncelog.redisEnvironment" -}}
{{- if .Values.redis.enabled }}
{{- $host := printf "%s-redis.%s.svc" (include "oncelog.fullname" .) .Release.Namespace }}
{{- if include "oncelog.usesTls" (dict "root" . "component" "redis") }}
- {name: ONCELOG_REDIS_URL, value: "rediss://{{ $host }}:6380/0"}
- {name: ONCELOG_REDIS_TLS_CA_FILE, value: /etc/oncelog/tls/ca.crt}
- {name: ONCELOG_REDIS_TLS_SERVER_NAME, value: oncelog}
{{- else }}
- {name: ONCELOG_REDIS_URL, value: "redis://{{ $host }}:6379/0"}
{{- end }}
- {name: ONCELOG_REDIS_PASSWORD_FILE, value: /etc/oncelog/redis/password}
{{- else if .Values.redis.external.urlSecret }}
- {name: ONCELOG_REDIS_URL_FILE, value: /etc/oncelog/redis/url}
{{- if .Values.redis.external.ca }}
- {name: ONCELOG_REDIS_TLS_CA_FILE, value: /etc/oncelog/redis/ca.crt}
{{- end }}
{{- end }}
{{- end }}
