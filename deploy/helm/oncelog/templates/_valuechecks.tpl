{{/* Checks of single values and pairs that a schema cannot express. Each message says what to change. */}}

{{/* A quantity of Kubernetes, such as 1.5Gi or 500m, in thousandths: bytes or cores. */}}
{{- define "oncelog.thousandths" -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- $text := kindIs "string" . | ternary . (include "oncelog.plain" .) -}}
{{- if and (not (kindIs "string" .)) (ne (float64 .) (float64 (int64 .))) }}{{ $text = toString . }}{{ end -}}
{{- mulf (regexFind "^[0-9.]+" $text) (get $units (regexFind "[A-Za-z]*$" $text)) 1000 | floor | int64 -}}
{{- end }}

{{/* Fails if a limit is below its request, or if the limit of memory is below `megabytes`, which `why` names. of: the values that have `resources`. */}}
{{- define "oncelog.checkResources" -}}
{{- $of := .of -}}
{{- $limits := dig "limits" dict (.resources | default dict) | default dict -}}
{{- $requests := dig "requests" dict (.resources | default dict) | default dict -}}
{{- range $what, $limit := $limits -}}
{{- $request := get $requests $what -}}
{{- if and (hasKey $requests $what) (lt (include "oncelog.thousandths" $limit | int64) (include "oncelog.thousandths" $request | int64)) -}}
{{- fail (printf "%s.limits.%s is %v, but %s.requests.%s is %v: a limit cannot be below its request. Raise the limit or lower the request." $of $what $limit $of $what $request) -}}
{{- end -}}
{{- end -}}
{{- if and .megabytes (hasKey $limits "memory") (lt (include "oncelog.thousandths" $limits.memory | int64) (mul .megabytes 1048576000 | int64)) -}}
{{- fail (printf "%s.limits.memory is %v, but %s: the pod would be killed. Raise it to at least %dMi, or lower these." $of $limits.memory .why (int .megabytes)) -}}
{{- end -}}
{{- end }}

{{/* MiB of the bytes that these settings allow in memory. values: of a component; settings: {name: default}. */}}
{{- define "oncelog.settingMegabytes" -}}
{{- $bytes := 0 -}}
{{- $values := .values -}}
{{- range $name, $default := .settings -}}
{{- $bytes = add $bytes (int64 (get $values.settings $name | default $default)) -}}
{{- end -}}
{{- div (add $bytes 1048575) 1048576 -}}
{{- end }}

{{/* A process of a service needs some 96 MiB besides what its settings allow it to keep. */}}
{{- define "oncelog.checkMemory" -}}
{{- $kept := dict
  "metadata" (dict "gatewayBytesMax" 134217728 "restBodiesBytesMax" 67108864 "consumeBytesMax" 134217728)
  "owner" (dict "entryCacheBytesMax" 67108864 "streamBytesMax" 134217728 "dedupBatchesBytesMax" 67108864)
  "storage" (dict "queueBytesMax" 67108864)
  "doors" (dict "doorBytesMax" 268435456) -}}
{{- range $component, $settings := $kept -}}
{{- $values := get $.Values $component -}}
{{- $megabytes := include "oncelog.settingMegabytes" (dict "values" $values "settings" $settings) | int -}}
{{- /* Clients of Pulsar and of Kafka have a budget each. */ -}}
{{- if and (eq $component "doors") $.Values.doors.pulsar.enabled $.Values.doors.kafka.enabled }}{{ $megabytes = mul 2 $megabytes | int }}{{ end -}}
{{- $why := printf "%s may keep %d MiB by %s.settings.%s, and needs 96 MiB besides" $component $megabytes $component (keys $settings | sortAlpha | join ", ") -}}
{{- include "oncelog.checkResources" (dict "of" (printf "%s.resources" $component) "resources" $values.resources "megabytes" (add $megabytes 96) "why" $why) -}}
{{- end -}}
{{- with .Values.zookeeper -}}
{{- if .enabled -}}
{{- include "oncelog.checkResources" (dict "of" "zookeeper.resources" "resources" .resources "megabytes" (add .heapMegabytes 96) "why" (printf "zookeeper.heapMegabytes is %d, and Java needs 96 MiB besides" (int .heapMegabytes))) -}}
{{- end -}}
{{- end -}}
{{- include "oncelog.checkResources" (dict "of" "redis.resources" "resources" .Values.redis.resources) -}}
{{- include "oncelog.checkResources" (dict "of" "redis.metrics.resources" "resources" .Values.redis.metrics.resources) -}}
{{- include "oncelog.checkResources" (dict "of" "relay.resources" "resources" .Values.relay.resources) -}}
{{- include "oncelog.checkResources" (dict "of" "backup.resources" "resources" .Values.backup.resources) -}}
{{- include "oncelog.checkResources" (dict "of" "adminJobs.resources" "resources" .Values.adminJobs.resources) -}}
{{- with .Values.pipeline.driver -}}
{{- $units := dict "k" 1 "m" 1024 "g" 1048576 "t" 1073741824 -}}
{{- $heap := mul (regexFind "^[0-9]+" .memory) (get $units (regexFind "[a-z]$" .memory)) -}}
{{- include "oncelog.checkResources" (dict "of" "pipeline.driver.resources" "resources" .resources "megabytes" (div $heap 1024) "why" (printf "pipeline.driver.memory is %s, the heap alone" .memory)) -}}
{{- end -}}
{{- end }}

{{/* Fails if a schedule is none that a CronJob takes. of: its value. */}}
{{- define "oncelog.checkSchedule" -}}
{{- $fields := list "[0-5]?[0-9]" "(?:[01]?[0-9]|2[0-3])" "(?:0?[1-9]|[12][0-9]|3[01])" "(?:0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)" "(?:[0-6]|sun|mon|tue|wed|thu|fri|sat)" -}}
{{- $patterns := list -}}
{{- range $fields -}}
{{- $item := printf "(?:[*?]|%s(?:-%s)?)(?:/[1-9][0-9]?)?" . . -}}
{{- $patterns = append $patterns (printf "%s(?:,%s)*" $item $item) -}}
{{- end -}}
{{- $macro := "@(?:yearly|annually|monthly|weekly|daily|midnight|hourly|every (?:[0-9]+[hms])+)" -}}
{{- if not (regexMatch (printf "^(?i)(?:%s|%s)$" (join " +" $patterns) $macro) (trim .schedule)) -}}
{{- fail (printf "%s is %q, which is no schedule: minute, hour, day of the month, month, and day of the week (0 to 6), as in \"17 * * * *\", or @hourly, @daily, @weekly, @monthly." .of .schedule) -}}
{{- end -}}
{{- end }}

{{/* Values of doors that would have no effect, or contradict each other. */}}
{{- define "oncelog.checkDoors" -}}
{{- with .Values.doors -}}
{{- range $field := list "plaintext" "rest" -}}
{{- include "oncelog.requireSwitch" (dict "on" $.Values.doors.pulsar.enabled "switch" "doors.pulsar.enabled" "given" (get $.Values.doors.pulsar $field) "value" (printf "doors.pulsar.%s" $field)) -}}
{{- end -}}
{{- include "oncelog.requireSwitch" (dict "on" $.Values.tls.enabled "switch" "tls.enabled" "given" .pulsar.plaintext "value" "doors.pulsar.plaintext") -}}
{{- range $field := list "advertised" "namespace" "annotations" "nodePort" "loadBalancerIP" -}}
{{- include "oncelog.requireSwitch" (dict "on" $.Values.doors.kafka.enabled "switch" "doors.kafka.enabled" "given" (get $.Values.doors.kafka $field) "value" (printf "doors.kafka.%s" $field)) -}}
{{- end -}}
{{- if and .kafka.enabled (not .pulsar.enabled) -}}
{{- range $field := list "nodePort" "tlsNodePort" "loadBalancerIP" -}}
{{- if get $.Values.doors.service $field -}}
{{- fail (printf "doors.service.%s is that of clients of Pulsar, but doors.pulsar.enabled is false, so it would have no effect. Set doors.kafka.%s, or remove it." $field (ternary $field "nodePort" (eq $field "loadBalancerIP"))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .kafka.nodePort (eq .service.type "ClusterIP") -}}
{{- fail "doors.kafka.nodePort is set, but doors.service.type is ClusterIP, so it would have no effect. Set doors.service.type to NodePort or LoadBalancer, or remove it." -}}
{{- end -}}
{{- if and .kafka.loadBalancerIP (ne .service.type "LoadBalancer") -}}
{{- fail (printf "doors.kafka.loadBalancerIP is set, but doors.service.type is %s, so it would have no effect. Set doors.service.type=LoadBalancer, or remove it." .service.type) -}}
{{- end -}}
{{- range $field := list "nodePort" "tlsNodePort" -}}
{{- if and $.Values.doors.kafka.nodePort (eq (int $.Values.doors.kafka.nodePort) (int (get $.Values.doors.service $field))) -}}
{{- fail (printf "doors.kafka.nodePort and doors.service.%s are both %d: each needs a port of its own." $field (int $.Values.doors.kafka.nodePort)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "oncelog.checkMirrors" -}}
{{- $names := list -}}
{{- range .Values.mirrors -}}
{{- if has .name $names -}}
{{- fail (printf "mirrors: two of them have the name %s. Names are those of Deployments: choose another one." .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- if and .topics (or .namespace .pattern) -}}
{{- fail (printf "mirrors: %s has topics and also namespace or pattern. Choose one: topics names each topic, namespace and pattern also take those that are created later." .name) -}}
{{- end -}}
{{- /* Of a pattern that does not compile, regexMatch says false. Python also knows groups and references that this engine does not: the mirror checks them. */ -}}
{{- if and .pattern (not (regexMatch `\(\?|\\[1-9]|\\Z|[*+?}][+]` .pattern)) (not (regexMatch (printf "(?:%s)|" .pattern) "")) -}}
{{- fail (printf "mirrors: the pattern of %s is no regular expression: %s" .name .pattern) -}}
{{- end -}}
{{- include "oncelog.checkResources" (dict "of" (printf "mirrors: resources of %s:" .name) "resources" .resources) -}}
{{- $budget := .podDisruptionBudget | default dict -}}
{{- include "oncelog.checkBudget" (dict "of" (printf "mirrors: %s:" .name) "replicas" (.replicaCount | default 2) "budget" (dict "enabled" (ternary $budget.enabled true (hasKey $budget "enabled")) "maxUnavailable" ($budget.maxUnavailable | default 1))) -}}
{{- end -}}
{{- end }}

{{- define "oncelog.checkBackup" -}}
{{- with .Values.backup -}}
{{- if .enabled -}}
{{- include "oncelog.checkSchedule" (dict "of" "backup.schedule" "schedule" .schedule) -}}
{{- if and $.Values.auth.enabled (has .role (concat (list $.Values.auth.serviceRole $.Values.auth.adminRole) (include "oncelog.pipelineSuperusers" $ | fromJsonArray) $.Values.auth.superusers)) -}}
{{- fail (printf "backup.role is %s, which is a superuser: the CronJob needs a role that may do nothing else." .role) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Settings are values: a variable of the same name would stand beside the one that the chart sets. */}}
{{- define "oncelog.checkEnvironments" -}}
{{- range $component := list "metadata" "owner" "storage" "doors" -}}
{{- range (get $.Values $component).extraEnv -}}
{{- if hasPrefix "ONCELOG_" .name -}}
{{- fail (printf "%s.extraEnv has %s: set it as a value, in %s.settings (`helm show values` lists them), and remove it here." $component .name $component) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}
