{{/* Shared parts of all pods. Arguments are dicts with root (the top scope), component (its name) and values (its values). */}}
{{/* The labels contain no version of chart or product, so that an upgrade restarts only the pods that it changes. */}}
{{- define "oncelog.podMetadata" -}}
labels:
  {{- include "oncelog.selector" . | nindent 2 }}
  {{- with .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with .values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- if or .checksum .certificate .values.podAnnotations }}
annotations:
  {{- with .checksum }}
  checksum/config: {{ . }}
  {{- end }}
  {{- with .certificate }}
  checksum/certificate: {{ . }}
  {{- end }}
  {{- with .values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* account: a service account other than the release's. apiToken: whether its token is mounted. */}}
{{- define "oncelog.podBasics" -}}
serviceAccountName: {{ default (include "oncelog.serviceAccountName" .root) .account }}
automountServiceAccountToken: {{ default false .apiToken }}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .values.terminationGracePeriodSeconds }}
{{- with .root.Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ kindIs "map" . | ternary (get (kindIs "map" . | ternary . dict) "name") . }}
  {{- end }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "oncelog.podSpec" -}}
{{- include "oncelog.podBasics" . }}
{{- $selector := include "oncelog.selector" . }}
{{- $values := .values }}
{{- $isDeployment := or (has .component (list "metadata" "relay" "door")) (hasPrefix "mirror-" .component) }}
{{- with .values.initContainers }}
initContainers:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.spread }}
{{- if $values.affinity }}
affinity:
  {{- toYaml $values.affinity | nindent 2 }}
{{- else if eq .nodes "hard" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- $selector | nindent 12 }}
{{- else if eq .nodes "soft" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- $selector | nindent 14 }}
          {{- if and $isDeployment (semverCompare ">=1.31.0-0" $.root.Capabilities.KubeVersion.Version) }}
          matchLabelKeys: [pod-template-hash]
          {{- end }}
{{- end }}
{{- if $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml $values.topologySpreadConstraints | nindent 2 }}
{{- else if ne .zones "none" }}
topologySpreadConstraints:
  - topologyKey: topology.kubernetes.io/zone
    maxSkew: 1
    whenUnsatisfiable: {{ ternary "DoNotSchedule" "ScheduleAnyway" (eq .zones "hard") }}
    labelSelector:
      matchLabels:
        {{- $selector | nindent 8 }}
    {{- if $isDeployment }}
    {{- /* In a rolling update the pods that are about to go do not count. */}}
    matchLabelKeys: [pod-template-hash]
    {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "oncelog.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  privileged: false
  capabilities:
    drop: [ALL]
{{- end }}

{{/* From Kubernetes 1.30 the kubelet itself sleeps, so the image needs no sleep program. */}}
{{- define "oncelog.preStop" -}}
{{- with .values.preStopSleepSeconds }}
lifecycle:
  preStop:
    {{- if semverCompare ">=1.30.0-0" $.root.Capabilities.KubeVersion.Version }}
    sleep:
      seconds: {{ . }}
    {{- else }}
    exec:
      command: [sleep, {{ . | quote }}]
    {{- end }}
{{- end }}
{{- end }}

{{- define "oncelog.httpProbes" -}}
{{- with .root.Values.probes }}
startupProbe:
  httpGet: {path: /livez, port: health}
  periodSeconds: 1
  timeoutSeconds: {{ .timeoutSeconds }}
  failureThreshold: {{ .startupTimeoutSeconds }}
livenessProbe:
  httpGet: {path: /livez, port: health}
  periodSeconds: {{ .livenessPeriodSeconds }}
  timeoutSeconds: {{ .timeoutSeconds }}
  failureThreshold: {{ .livenessFailureThreshold }}
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: {{ .readinessPeriodSeconds }}
  timeoutSeconds: {{ .timeoutSeconds }}
{{- end }}
{{- end }}

{{/* The same three probes with commands in the container. commands: {live, ready}, each a list. */}}
{{- define "oncelog.execProbes" -}}
{{- $probes := .root.Values.probes }}
startupProbe:
  exec: {command: {{ toJson .live }}}
  periodSeconds: 1
  timeoutSeconds: {{ $probes.timeoutSeconds }}
  failureThreshold: {{ $probes.startupTimeoutSeconds }}
livenessProbe:
  exec: {command: {{ toJson .live }}}
  periodSeconds: {{ $probes.execLivenessPeriodSeconds }}
  timeoutSeconds: {{ $probes.timeoutSeconds }}
  failureThreshold: {{ $probes.livenessFailureThreshold }}
readinessProbe:
  exec: {command: {{ toJson .ready }}}
  periodSeconds: {{ $probes.execReadinessPeriodSeconds }}
  timeoutSeconds: {{ $probes.timeoutSeconds }}
{{- end }}

{{- define "oncelog.claimPolicy" -}}
{{- with .values.persistence }}
{{- if .enabled }}
persistentVolumeClaimRetentionPolicy:
  whenDeleted: {{ .whenDeleted }}
  whenScaled: {{ .whenScaled }}
{{- end }}
{{- end }}
{{- end }}

{{/* The volume claim template `data`. It is immutable, so it has only the labels of the selector. */}}
{{- define "oncelog.claim" -}}
{{- if .values.persistence.enabled }}
volumeClaimTemplates:
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata:
      name: data
      labels:
        {{- include "oncelog.selector" . | nindent 8 }}
      {{- with .values.persistence.annotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      accessModes: [ReadWriteOnce]
      {{- with .values.persistence.storageClassName }}
      storageClassName: {{ . }}
      {{- end }}
      resources:
        requests:
          storage: {{ .values.persistence.size }}
{{- end }}
{{- end }}

{{- define "oncelog.scratchVolumes" -}}
- name: tmp
  emptyDir: {}
{{- if and .values.persistence (not .values.persistence.enabled) }}
- name: data
  emptyDir: {}
{{- end }}
{{- with .values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The user's additional volume mounts and containers. */}}
{{- define "oncelog.extraMounts" -}}
{{- with .values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "oncelog.sidecars" -}}
{{- with .values.sidecars }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "oncelog.updateStrategy" -}}
{{- with .values.updateStrategy }}
updateStrategy:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
