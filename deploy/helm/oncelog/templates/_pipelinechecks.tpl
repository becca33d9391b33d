{{/* Values of the pipeline that do not fit each other. Each message says what to change. */}}
{{- define "oncelog.checkPipeline" -}}
{{- with .Values.pipeline -}}
{{- if .enabled -}}
{{- $copy := or .copy.from .copy.to .copy.producerPrefix -}}
{{- if and .application.file .application.script -}}
{{- fail "pipeline.application.file and pipeline.application.script are both given: which is meant?" -}}
{{- end -}}
{{- if and $copy (or .application.file .application.script) -}}
{{- fail "pipeline.copy and pipeline.application are both given: which is meant? Leave copy empty to run a main file of your own." -}}
{{- end -}}
{{- if and .replicaCount (not .application.file) (not .application.script) -}}
{{- range $name := list "from" "to" "producerPrefix" -}}
{{- if not (get $.Values.pipeline.copy $name) -}}
{{- fail (printf "pipeline.enabled is true and pipeline.copy.%s is empty: name the topics to copy from and to and a producerPrefix, or give a main file in pipeline.application, or set pipeline.replicaCount=0 to submit jobs yourself." $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .checkpoint.location .checkpoint.persistence.existingClaim -}}
{{- fail "pipeline.checkpoint.location and pipeline.checkpoint.persistence.existingClaim are both given: choose one." -}}
{{- end -}}
{{- if or (eq .role $.Values.auth.serviceRole) (eq .role $.Values.auth.adminRole) (has .role $.Values.auth.superusers) -}}
{{- if $.Values.auth.enabled -}}
{{- fail (printf "pipeline.role is %s, which is a superuser: a job needs a role of its own." .role) -}}
{{- end -}}
{{- end -}}
{{- if not .existingSecret -}}
{{- $make := "Make a Secret with `token` and `ca.crt` and name it in pipeline.existingSecret (the chart's README.md says how)." -}}
{{- if and $.Values.auth.enabled $.Values.auth.existingSecret -}}
{{- fail (printf "auth.existingSecret is given and pipeline.existingSecret is empty: the chart makes no tokens with a key that is yours. %s" $make) -}}
{{- end -}}
{{- if and $.Values.tls.enabled (or $.Values.tls.existingSecret $.Values.tls.certManager.enabled) -}}
{{- fail (printf "the certificate is not made by the chart, and pipeline.existingSecret is empty: the chart does not know your CA. %s" $make) -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .sparkConf -}}
{{- if has $name (include "oncelog.sparkReserved" $ | fromJsonArray) -}}
{{- fail (printf "pipeline.sparkConf has %s, which the chart decides: policies, probes and pod templates rely on it. Leave it out." $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "oncelog.sparkReserved" -}}
{{- toJson (list "spark.master" "spark.submit.deployMode" "spark.driver.host" "spark.driver.port" "spark.driver.blockManager.port" "spark.blockManager.port" "spark.port.maxRetries" "spark.ui.enabled" "spark.ui.port" "spark.kubernetes.namespace" "spark.kubernetes.driver.pod.name" "spark.kubernetes.driver.podTemplateContainerName" "spark.kubernetes.executor.podTemplateContainerName" "spark.kubernetes.executor.podTemplateFile" "spark.kubernetes.authenticate.driver.serviceAccountName" "spark.kubernetes.authenticate.executor.serviceAccountName") -}}
{{- end }}
