{{/* Names and labels. Selectors, Service names and volume claims are immutable, so the names and labels that they use must not change. */}}
{{- define "oncelog.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "oncelog.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $own := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) -}}
{{- /* 40 characters leave room for -zookeeper-headless and an ordinal in a DNS label */ -}}
{{- default $own .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "oncelog.selector" -}}
app.kubernetes.io/name: {{ include "oncelog.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "oncelog.labels" -}}
{{ include "oncelog.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Annotations of an object: `own`, and `commonAnnotations`. */}}
{{- define "oncelog.annotations" -}}
{{- with merge (deepCopy (default dict .own)) .root.Values.commonAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "oncelog.serviceAccountName" -}}
{{- default (ternary (include "oncelog.fullname" .) "default" .Values.serviceAccount.create) .Values.serviceAccount.name -}}
{{- end }}

{{/* image: {repository, tag, digest}; global.imageRegistry is prepended. */}}
{{- define "oncelog.image" -}}
{{- $tag := default .root.Chart.AppVersion .image.tag -}}
{{- $registry := .root.Values.global.imageRegistry -}}
{{- if $registry }}{{ trimSuffix "/" $registry }}/{{ end -}}
{{ .image.repository }}{{ if .image.digest }}@{{ .image.digest }}{{ else }}:{{ $tag }}{{ end -}}
{{- end }}

{{/* The image of an Oncelog service; its own values override the common ones. */}}
{{- define "oncelog.serviceImage" -}}
{{- include "oncelog.image" (dict "root" .root "image" (mergeOverwrite (deepCopy .root.Values.image) .values.image)) -}}
{{- end }}

{{/* Names without the namespace. With it, each name has more dots and is first looked up in vain in two search domains, and a client that has lost its
server looks up all of them several times a second. */}}
{{- define "oncelog.zookeeperHosts" -}}
{{- if .Values.zookeeper.enabled -}}
{{- $name := printf "%s-zookeeper" (include "oncelog.fullname" .) -}}
{{- $hosts := list -}}
{{- range $number := until (int .Values.zookeeper.replicaCount) -}}
{{- $hosts = append $hosts (printf "%s-%d.%s-headless:%s" $name $number $name (ternary "2281" "2181" (not (empty (include "oncelog.usesTls" (dict "root" $ "component" "zookeeper")))))) -}}
{{- end -}}
{{- join "," $hosts -}}
{{- else -}}
{{- join "," .Values.zookeeper.externalHosts -}}
{{- end -}}
{{- .Values.zookeeper.chroot -}}
{{- end }}

{{- define "oncelog.authSecret" -}}
{{- default (printf "%s-auth" (include "oncelog.fullname" .)) .Values.auth.existingSecret -}}
{{- end }}

{{- define "oncelog.zookeeperSecret" -}}
{{- default (printf "%s-zookeeper-auth" (include "oncelog.fullname" .)) .Values.zookeeper.auth.existingSecret -}}
{{- end }}

{{- define "oncelog.tlsSecret" -}}
{{- default (printf "%s-tls" (include "oncelog.fullname" .)) .Values.tls.existingSecret -}}
{{- end }}

{{/* Addresses of the log and of REST for clients in the cluster. */}}
{{- define "oncelog.url" -}}
oncelog{{ if .Values.tls.enabled }}+tls{{ end }}://{{ include "oncelog.fullname" . }}-metadata.{{ .Release.Namespace }}.svc:6650
{{- end }}

{{- define "oncelog.adminUrl" -}}
http{{ if .Values.tls.enabled }}s{{ end }}://{{ include "oncelog.fullname" . }}-metadata.{{ .Release.Namespace }}.svc:8080
{{- end }}

{{/* Host names of the certificate, as a JSON list; IP addresses are separate. */}}
{{- define "oncelog.certificateNames" -}}
{{- $name := include "oncelog.fullname" . -}}
{{- $space := .Release.Namespace -}}
{{- $domain := .Values.clusterDomain -}}
{{- $names := list "oncelog" "localhost" (printf "%s-metadata" $name) (printf "%s-metadata.%s" $name $space) (printf "%s-metadata.%s.svc" $name $space) (printf "%s-metadata.%s.svc.%s" $name $space $domain) -}}
{{- /* Always, because a certificate of this chart keeps its names when doors are switched on later. */ -}}
{{- range $protocol := list "pulsar" "kafka" -}}
{{- range list "" (printf ".%s" $space) (printf ".%s.svc" $space) (printf ".%s.svc.%s" $space $domain) -}}
{{- $names = append $names (printf "%s-%s%s" $name $protocol .) -}}
{{- end -}}
{{- end -}}
{{- range list "owner" "storage" -}}
{{- $names = append $names (printf "*.%s-%s-headless.%s.svc" $name . $space) -}}
{{- $names = append $names (printf "*.%s-%s-headless.%s.svc.%s" $name . $space $domain) -}}
{{- end -}}
{{- range .Values.tls.extraNames -}}
{{- if not (regexMatch "^([0-9.]+|.*:.*)$" .) }}{{ $names = append $names . }}{{ end -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}

{{/* Without authentication: the names by which HTTP requests may come, those of the certificate and of the HTTPRoute. more: further ones, separated by commas.
NAME.NAMESPACE is left out: where the namespace is called as a top-level domain, a stranger may own that name. So are those of doors where they do not speak HTTP: of Kafka's always, of Pulsar's without REST. */}}
{{- define "oncelog.httpHosts" -}}
{{- $names := list -}}
{{- $public := printf "%s-metadata.%s" (include "oncelog.fullname" .root) .root.Release.Namespace -}}
{{- $doors := printf "%s-pulsar" (include "oncelog.fullname" .root) -}}
{{- $doorsPublic := printf "%s.%s" $doors .root.Release.Namespace -}}
{{- $silent := list (printf "%s-kafka" (include "oncelog.fullname" .root)) -}}
{{- if not .root.Values.doors.pulsar.rest }}{{ $silent = append $silent $doors }}{{ end -}}
{{- range concat (without (include "oncelog.certificateNames" .root | fromJsonArray) $public $doorsPublic) .root.Values.gatewayApi.restHostnames -}}
{{- if not (has (splitList "." . | first) $silent) }}{{ $names = append $names (trimPrefix "*" .) }}{{ end -}}
{{- end -}}
{{- with .more }}{{ $names = append $names . }}{{ end -}}
{{- $names | uniq | join "," -}}
{{- end }}

{{- define "oncelog.certificateAddresses" -}}
{{- $addresses := list "127.0.0.1" -}}
{{- range .Values.tls.extraNames -}}
{{- if regexMatch "^([0-9.]+|.*:.*)$" . }}{{ $addresses = append $addresses . }}{{ end -}}
{{- end -}}
{{- toJson $addresses -}}
{{- end }}
