; makensis -DVERSION=1.0.0 -DFOLDER=C:\build\photo-lab photo_lab.nsi
Unicode true
Target amd64-unicode
Name "Photo Lab"
OutFile "photo-lab-${VERSION}-setup.exe"
RequestExecutionLevel user
InstallDir "$LOCALAPPDATA\Programs\Photo Lab"
InstallDirRegKey HKCU "Software\Photo Lab" "folder" ; an update goes where the app is
!define KEY "Software\Microsoft\Windows\CurrentVersion\Uninstall\Photo Lab"

; The new version is complete beside the old one before it takes its name: a file in use, a full disk or a kill
; leaves the old version as it was, and never files of both.
Section
  ; of a set-up that was killed midway
  IfFileExists "$INSTDIR\*.*" +2
    Rename "$INSTDIR.old" "$INSTDIR"
  RMDir /r "$INSTDIR.old"
  RMDir /r "$INSTDIR.new"
  IfFileExists "$INSTDIR\uninstall.exe" unpack
    RMDir "$INSTDIR" ; an empty folder; one of other files is no folder of this app, and is not replaced
    IfFileExists "$INSTDIR\*.*" failed

  unpack:
  SetOutPath "$INSTDIR.new"
  ClearErrors
  File /r "${FOLDER}/*.*"
  WriteUninstaller "$INSTDIR.new\uninstall.exe"
  IfErrors failed
  SetOutPath "$TEMP" ; the folder that a program works in cannot be renamed

  IfFileExists "$INSTDIR\*.*" 0 place
  StrCpy $0 0
  aside: ; Windows renames no folder of which a file is in use, such as by a second window of the app
    ClearErrors
    Rename "$INSTDIR" "$INSTDIR.old"
    IfErrors 0 place
    IntOp $0 $0 + 1
    Sleep 500 ; a virus scanner is soon done
    IntCmp $0 10 failed aside failed
  place:
    ClearErrors
    Rename "$INSTDIR.new" "$INSTDIR"
    IfErrors 0 done
    Rename "$INSTDIR.old" "$INSTDIR"
  failed:
    SetOutPath "$TEMP"
    RMDir /r "$INSTDIR.new"
    SetErrorLevel 5 ; without this it ends with 0
    Quit

  done:
  RMDir /r "$INSTDIR.old"
  WriteRegStr HKCU "Software\Photo Lab" "folder" "$INSTDIR"
  WriteRegStr HKCU "${KEY}" "DisplayName" "Photo Lab"
  WriteRegStr HKCU "${KEY}" "DisplayVersion" "${VERSION}" ; winget compares it
  WriteRegStr HKCU "${KEY}" "InstallLocation" "$INSTDIR"
  WriteRegStr HKCU "${KEY}" "UninstallString" '"$INSTDIR\uninstall.exe"'
  SetOutPath "$INSTDIR" ; where the shortcut starts the app
  CreateShortcut "$SMPROGRAMS\Photo Lab.lnk" "$INSTDIR\photo-lab.exe"
SectionEnd

Section "Uninstall"
  RMDir /r "$INSTDIR"
  RMDir /r "$INSTDIR.old"
  Delete "$SMPROGRAMS\Photo Lab.lnk"
  DeleteRegKey HKCU "${KEY}"
  DeleteRegKey HKCU "Software\Photo Lab"
SectionEnd
