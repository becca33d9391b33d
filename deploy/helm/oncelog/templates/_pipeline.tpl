{{/* Shared parts of the release's Spark driver, its executors, and jobs that users submit. */}}

{{- define "oncelog.pipelineName" -}}
{{ include "oncelog.fullname" . }}-pipeline
{{- end }}

{{/* An account that may create pods in a namespace can mount its Secrets. A separate namespace protects the release's Secrets from the driver. */}}
{{- define "oncelog.pipelineNamespace" -}}
{{ default .Release.Namespace .Values.pipeline.namespace }}
{{- end }}

{{/* Metadata of a pipeline object. suffix: of its name. */}}
{{- define "oncelog.pipelineMetadata" -}}
name: {{ include "oncelog.pipelineName" .root }}{{ .suffix }}
namespace: {{ include "oncelog.pipelineNamespace" .root }}
labels:
  {{- include "oncelog.labels" . | nindent 2 }}
{{- with include "oncelog.annotations" (dict "root" .root "own" .annotations) }}
{{ . }}
{{- end }}
{{- end }}

{{/* The Secret with the token, and the CA if TLS is on. It is separate because the other Secrets contain keys. */}}
{{- define "oncelog.pipelineSecret" -}}
{{- default (include "oncelog.pipelineName" .) .Values.pipeline.existingSecret -}}
{{- end }}

{{- define "oncelog.pipelineSecretKeys" -}}
{{- $keys := list -}}
{{- if .Values.auth.enabled }}{{ $keys = append $keys "token" }}{{ end -}}
{{- if .Values.tls.enabled }}{{ $keys = append $keys "ca.crt" }}{{ end -}}
{{- toJson $keys -}}
{{- end }}

{{/* Storage nodes serve only superusers. */}}
{{- define "oncelog.readsStorage" -}}
{{- if and .Values.pipeline.enabled (eq .Values.pipeline.closedLedgers "storage") }}yes{{ end -}}
{{- end }}

{{- define "oncelog.pipelineSuperusers" -}}
{{- if include "oncelog.readsStorage" . }}{{ list .Values.pipeline.role | toJson }}{{ else }}[]{{ end -}}
{{- end }}

{{/* Location of checkpoints. */}}
{{- define "oncelog.checkpointLocation" -}}
{{- default "/checkpoints" .Values.pipeline.checkpoint.location -}}
{{- end }}

{{- define "oncelog.checkpointClaim" -}}
{{- with .Values.pipeline.checkpoint -}}
{{- if and (not .location) .persistence.enabled -}}
{{- default (printf "%s-checkpoints" (include "oncelog.pipelineName" $)) .persistence.existingClaim -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* checkpoint: whether the checkpoint volume is included. */}}
{{- define "oncelog.pipelineEnvironment" -}}
{{- $values := .root.Values -}}
- {name: ONCELOG_URL, value: {{ include "oncelog.url" .root | quote }}}
- {name: ONCELOG_CLOSED_LEDGERS, value: {{ $values.pipeline.closedLedgers }}}
{{- if $values.tls.enabled }}
- {name: ONCELOG_TLS_CA_FILE, value: /etc/oncelog/pipeline/ca.crt}
{{- end }}
{{- if $values.auth.enabled }}
- {name: ONCELOG_TOKEN_FILE, value: /etc/oncelog/pipeline/token}
{{- end }}
{{- if or .checkpoint $values.pipeline.checkpoint.location }}
- {name: CHECKPOINT_LOCATION, value: {{ include "oncelog.checkpointLocation" .root | quote }}}
{{- end }}
{{- with $values.pipeline.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* checkpoint: whether the checkpoint volume is included. */}}
{{- define "oncelog.pipelineMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if or .root.Values.auth.enabled .root.Values.tls.enabled }}
- {name: oncelog, mountPath: /etc/oncelog/pipeline, readOnly: true}
{{- end }}
{{- if .checkpoint }}
- {name: checkpoints, mountPath: {{ include "oncelog.checkpointLocation" .root }}}
{{- end }}
{{- end }}

{{- define "oncelog.pipelineVolumes" -}}
- name: tmp
  emptyDir: {}
{{- $keys := include "oncelog.pipelineSecretKeys" .root | fromJsonArray }}
{{- if $keys }}
- name: oncelog
  secret:
    secretName: {{ include "oncelog.pipelineSecret" .root }}
    defaultMode: 0440
    items:
      {{- range $keys }}
      - {key: {{ . }}, path: {{ . }}}
      {{- end }}
{{- end }}
{{- if .checkpoint }}
- name: checkpoints
  {{- with include "oncelog.checkpointClaim" .root }}
  persistentVolumeClaim: {claimName: {{ . }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}
{{- end }}

{{/* Spark's web UI responds when the session exists. There is no liveness probe: a failed query ends the process, and a restart is expensive. */}}
{{- define "oncelog.driverProbes" -}}
{{- with .Values.probes -}}
readinessProbe:
  httpGet: {path: /api/v1/version, port: ui}
  periodSeconds: {{ .livenessPeriodSeconds }}
  timeoutSeconds: {{ .timeoutSeconds }}
{{- end }}
{{- end }}

{{/* A pod template for spark-submit, with what Spark does not set itself. component, values, container: of driver or executor; account, apiToken: as in podBasics; checkpoint: whether the checkpoint volume is included. */}}
{{- define "oncelog.sparkPodTemplate" -}}
apiVersion: v1
kind: Pod
metadata:
  {{- include "oncelog.podMetadata" . | nindent 2 }}
spec:
  {{- include "oncelog.podBasics" . | nindent 2 }}
  containers:
    - name: {{ .container }}
      {{- include "oncelog.containerSecurity" . | nindent 6 }}
      env:
        {{- include "oncelog.pipelineEnvironment" . | nindent 8 }}
      volumeMounts:
        {{- include "oncelog.pipelineMounts" . | nindent 8 }}
  volumes:
    {{- include "oncelog.pipelineVolumes" . | nindent 4 }}
{{- end }}

{{/* A ReadWriteMany volume is mounted by executors, too, which write the state of stateful queries. */}}
{{- define "oncelog.executorScope" -}}
{{- $shared := eq .Values.pipeline.checkpoint.persistence.accessMode "ReadWriteMany" -}}
{{- $claim := include "oncelog.checkpointClaim" . -}}
{{- toJson (dict "component" "executor" "container" "executor" "checkpoint" (and $shared (ne $claim ""))) -}}
{{- end }}

{{/* Spark settings of the release's driver and of jobs that users submit. Settings of the user take precedence. */}}
{{- define "oncelog.sparkSettings" -}}
{{- $values := .Values.pipeline -}}
{{- $own := dict
  "spark.kubernetes.namespace" (include "oncelog.pipelineNamespace" .)
  "spark.kubernetes.container.image" (include "oncelog.image" (dict "root" . "image" $values.image))
  "spark.kubernetes.container.image.pullPolicy" $values.image.pullPolicy
  "spark.kubernetes.authenticate.driver.serviceAccountName" (include "oncelog.pipelineName" .)
  "spark.kubernetes.authenticate.executor.serviceAccountName" (printf "%s-executor" (include "oncelog.pipelineName" .))
  "spark.kubernetes.driver.podTemplateContainerName" "driver"
  "spark.kubernetes.executor.podTemplateContainerName" "executor"
  "spark.kubernetes.executor.request.cores" $values.executor.requestCores
  "spark.kubernetes.driver.connectionTimeout" 60000
  "spark.kubernetes.driver.requestTimeout" 60000
  "spark.kubernetes.driver.service.deleteOnTermination" false
  "spark.kubernetes.submission.connectionTimeout" 60000
  "spark.kubernetes.submission.requestTimeout" 60000
  "spark.executor.instances" $values.executor.instances
  "spark.executor.cores" $values.executor.cores
  "spark.executor.memory" $values.executor.memory
  "spark.executor.memoryOverhead" $values.executor.memoryOverhead
  "spark.executor.failuresValidityInterval" "1h"
  "spark.python.authenticate.socketTimeout" "120s"
  "spark.driver.memory" $values.driver.memory
  "spark.driver.memoryOverhead" $values.driver.memoryOverhead
  "spark.driver.port" 7078
  "spark.driver.blockManager.port" 7079
  "spark.blockManager.port" 7079
  "spark.ui.port" 4040
  "spark.port.maxRetries" 0
  "spark.ui.killEnabled" false
  "spark.authenticate" true
  "spark.network.crypto.enabled" true
-}}
{{- with (dig "requests" "cpu" "" $values.driver.resources) }}{{ $_ := set $own "spark.kubernetes.driver.request.cores" . }}{{ end -}}
{{- with $values.executor.limitCores }}{{ $_ := set $own "spark.kubernetes.executor.limit.cores" . }}{{ end -}}
{{- range $name, $value := merge (deepCopy $values.sparkConf) $own }}
{{ $name }} {{ include "oncelog.plain" $value }}
{{- end }}
{{- end }}

{{/* The files in the pipeline's ConfigMap, which users also download for their own jobs. */}}
{{- define "oncelog.pipelineFiles" -}}
{{- $values := .Values.pipeline -}}
spark.properties: |
  # Settings for spark-submit --properties-file.
  {{- include "oncelog.sparkSettings" . | trim | nindent 2 }}
driver.yaml: |
  {{- include "oncelog.sparkPodTemplate" (dict "root" . "component" "pipeline" "container" "driver" "values" $values.driver "account" (include "oncelog.pipelineName" .) "apiToken" true) | nindent 2 }}
executor.yaml: |
  {{- include "oncelog.sparkPodTemplate" (merge (dict "root" . "values" $values.executor "account" (printf "%s-executor" (include "oncelog.pipelineName" .))) (include "oncelog.executorScope" . | fromJson)) | nindent 2 }}
{{- with $values.application.script }}
main.py: |
  {{- . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Main file and arguments, after spark-submit's options, as a JSON list. */}}
{{- define "oncelog.pipelineApplication" -}}
{{- $words := list -}}
{{- with .Values.pipeline -}}
{{- if .application.script -}}
{{- $words = prepend .application.arguments "/etc/oncelog/spark/main.py" -}}
{{- else if .application.file -}}
{{- $words = prepend .application.arguments .application.file -}}
{{- else -}}
{{- $words = list "local:///opt/pipeline/jobs/oncelog_jobs.py" "copy" "--from" .copy.from "--to" .copy.to "--producer-prefix" .copy.producerPrefix "--checkpoint" "$(CHECKPOINT_LOCATION)/copy" -}}
{{- if and $.Values.auth.enabled (not $.Values.tls.enabled) }}{{ $words = append $words "--allow-plaintext-token" }}{{ end -}}
{{- $words = concat $words .application.arguments -}}
{{- end -}}
{{- end -}}
{{- toJson $words -}}
{{- end }}

{{/* {namespace: rights} that the job needs: for copy, the namespaces of its topics; for other jobs, placeholders. */}}
{{- define "oncelog.pipelineGrants" -}}
{{- $grants := dict -}}
{{- with .Values.pipeline.copy -}}
{{- if .from -}}
{{- range splitList "," .from -}}
{{- $topic := trim . | trimPrefix "persistent://" -}}
{{- $_ := set $grants (ternary (dir $topic) "public/default" (contains "/" $topic)) "consume" -}}
{{- end -}}
{{- $topic := .to | trimPrefix "persistent://" -}}
{{- $_ := set $grants (ternary (dir $topic) "public/default" (contains "/" $topic)) "produce consume" -}}
{{- else -}}
{{- $_ := set $grants "TENANT/READ-FROM" "consume" -}}
{{- $_ := set $grants "TENANT/WRITTEN-TO" "produce consume" -}}
{{- end -}}
{{- end -}}
{{- toJson $grants -}}
{{- end }}
