{{/* Why a Job that runs before an upgrade cannot ask the running services, or nothing. It has the Secrets and the address of the new release: one that the
upgrade makes does not exist yet, and services that do not use TLS or tokens yet, or still do, refuse it. Known only where Helm asks the cluster. */}}
{{- define "oncelog.hookObstacle" -}}
{{- $root := . -}}
{{- if lookup "v1" "ConfigMap" .Release.Namespace "kube-root-ca.crt" -}}
{{- $running := "" -}}
{{- with lookup "apps/v1" "Deployment" .Release.Namespace (printf "%s-metadata" (include "oncelog.fullname" .)) -}}
{{- range .spec.template.spec.containers -}}
{{- if eq .name "metadata" -}}
{{- range .env }}{{ $running = printf "%s %s" $running .name }}{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $what, $variable := dict "tls" "ONCELOG_TLS_CERTIFICATE_FILE" "auth" "ONCELOG_AUTH_KEY_FILE" -}}
{{- $values := get $root.Values $what -}}
{{- $secret := include (printf "oncelog.%sSecret" $what) $root -}}
{{- if and $running (ne $values.enabled (contains $variable $running)) -}}
the upgrade changes {{ $what }}.enabled.{{ " " }}
{{- else if and $values.enabled (not (lookup "v1" "Secret" $root.Release.Namespace $secret)) -}}
the Secret {{ $secret }} does not exist, so the upgrade makes it.{{ " " }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* A Job in a hook of Helm that runs `oncelog admin` with the administrator's token. name: its name; hook: when it runs; arguments: of the command;
files: name of a ConfigMap to mount at /etc/oncelog/files. The command may be repeated: it continues where the last attempt ended. */}}
{{- define "oncelog.adminJob" -}}
{{- /* The network policies of the installed release allow the pod of `helm test`, whose label this pod has. */}}
{{- $scope := dict "root" .root "component" "check" "values" (merge (dict "terminationGracePeriodSeconds" 5) .root.Values.adminJobs) }}
{{- $values := .root.Values }}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .name }}
  labels:
    {{- include "oncelog.labels" $scope | nindent 4 }}
  {{- $hook := dict "helm.sh/hook" .hook "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" }}
  {{- include "oncelog.annotations" (dict "root" .root "own" $hook) | nindent 2 }}
spec:
  # Exit codes 1 and 2 mean that another attempt would fail, too.
  backoffLimit: 3
  podFailurePolicy:
    rules:
      - action: FailJob
        onExitCodes: {containerName: check, operator: In, values: [1, 2]}
  template:
    metadata:
      {{- include "oncelog.podMetadata" $scope | nindent 6 }}
    spec:
      restartPolicy: Never
      {{- include "oncelog.podSpec" $scope | nindent 6 }}
      containers:
        - name: check
          image: {{ include "oncelog.serviceImage" (dict "root" .root "values" $values.metadata) }}
          imagePullPolicy: {{ default $values.image.pullPolicy $values.metadata.image.pullPolicy }}
          args:
            {{- range concat (list "oncelog.cli" "admin") .arguments }}
            - {{ . | quote }}
            {{- end }}
            {{- if and $values.auth.enabled (not $values.tls.enabled) }}
            - --allow-plaintext-token
            {{- end }}
          # `kubectl describe pod` shows the end of the log, which has the error.
          terminationMessagePolicy: FallbackToLogsOnError
          {{- include "oncelog.containerSecurity" .root | nindent 10 }}
          {{- with $values.adminJobs.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          env:
            {{- include "oncelog.clientEnvironment" .root | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- if .files }}
            - {name: files, mountPath: /etc/oncelog/files, readOnly: true}
            {{- end }}
            {{- include "oncelog.secretMounts" .root | nindent 12 }}
      volumes:
        {{- include "oncelog.scratchVolumes" $scope | nindent 8 }}
        {{- with .files }}
        - name: files
          configMap: {name: {{ . }}}
        {{- end }}
        {{- include "oncelog.secretVolumes" (dict "root" .root "keys" (list "admin-token") "tlsKeys" (list "ca.crt")) | nindent 8 }}
{{- end }}
