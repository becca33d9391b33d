{{/* Checks of pipeline values that contradict each other. Each message says what to change. */}}
{{- define "oncelog.checkPipeline" -}}
{{- with .Values.pipeline -}}
{{- if .enabled -}}
{{- $copy := or .copy.from .copy.to .copy.producerPrefix -}}
{{- if and .application.file .application.script -}}
{{- fail "pipeline.application.file and pipeline.application.script are both set: choose one." -}}
{{- end -}}
{{- if and $copy (or .application.file .application.script) -}}
{{- fail "pipeline.copy and pipeline.application are both set: choose one. Leave copy empty to run your own main file." -}}
{{- end -}}
{{- if and .replicaCount (not .application.file) (not .application.script) -}}
{{- range $name := list "from" "to" "producerPrefix" -}}
{{- if not (get $.Values.pipeline.copy $name) -}}
{{- fail (printf "pipeline.enabled is true and pipeline.copy.%s is empty: set copy.from, copy.to and copy.producerPrefix, or a main file in pipeline.application, or set pipeline.replicaCount=0 to submit jobs yourself." $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $sources := list -}}
{{- range splitList "," .copy.from }}{{ $sources = append $sources (trim . | trimPrefix "public/default/") }}{{ end -}}
{{- if and .copy.to (has (trimPrefix "public/default/" .copy.to) $sources) -}}
{{- fail (printf "pipeline.copy.from and pipeline.copy.to both name %s: the job would copy its own copies for ever. Choose another target." .copy.to) -}}
{{- end -}}
{{- if and .checkpoint.location .checkpoint.persistence.existingClaim -}}
{{- fail "pipeline.checkpoint.location and pipeline.checkpoint.persistence.existingClaim are both set: choose one." -}}
{{- end -}}
{{- if or (eq .role $.Values.auth.serviceRole) (eq .role $.Values.auth.adminRole) (has .role $.Values.auth.superusers) -}}
{{- if $.Values.auth.enabled -}}
{{- fail (printf "pipeline.role is %s, which is a superuser: jobs need a separate role." .role) -}}
{{- end -}}
{{- end -}}
{{- if not .existingSecret -}}
{{- $make := "Create a Secret with `token` and `ca.crt`, and name it in pipeline.existingSecret (see the chart's README.md)." -}}
{{- if and $.Values.auth.enabled $.Values.auth.existingSecret -}}
{{- fail (printf "auth.existingSecret is set, but pipeline.existingSecret is empty: the chart cannot create tokens with your own key. %s" $make) -}}
{{- end -}}
{{- if and $.Values.tls.enabled (or $.Values.tls.existingSecret $.Values.tls.certManager.enabled) -}}
{{- fail (printf "the certificate is not created by the chart, and pipeline.existingSecret is empty: the chart does not have your CA. %s" $make) -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .sparkConf -}}
{{- if has $name (include "oncelog.sparkReserved" $ | fromJsonArray) -}}
{{- fail (printf "pipeline.sparkConf has %s, which the chart sets: policies, probes and pod templates depend on it. Remove it." $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "oncelog.sparkReserved" -}}
{{- toJson (list "spark.master" "spark.submit.deployMode" "spark.driver.host" "spark.driver.port" "spark.driver.blockManager.port" "spark.blockManager.port" "spark.port.maxRetries" "spark.ui.enabled" "spark.ui.port" "spark.kubernetes.namespace" "spark.kubernetes.driver.pod.name" "spark.kubernetes.driver.podTemplateContainerName" "spark.kubernetes.executor.podTemplateContainerName" "spark.kubernetes.executor.podTemplateFile" "spark.kubernetes.authenticate.driver.serviceAccountName" "spark.kubernetes.authenticate.executor.serviceAccountName") -}}
{{- end }}
